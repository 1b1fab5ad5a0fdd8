// SPDX-License-Identifier: Apache-2.0

package service_test

import "testing"

// When a key was last used is stored by the time that the service is closed.
func TestLastUsedIsStoredAtTheEnd(t *testing.T) {
	p := newPlace(t)
	s, url := p.must(nil)
	first := s.FirstKey
	status, made := ask(t, "POST", url+"/v1/keys", first, `{"name": "reader", "role": "viewer"}`)
	if status != 201 || made["lastUsedAt"] != nil {
		t.Fatal(status, made)
	}
	if status, out := ask(t, "GET", url+"/v1/me", made["token"].(string), ""); status != 200 {
		t.Fatal(status, out)
	}
	at := "/v1/keys/" + made["id"].(string)
	_, before := ask(t, "GET", url+at, first, "")
	p.close(s)
	s, url = p.must(nil)
	_, after := ask(t, "GET", url+at, first, "")
	if after["lastUsedAt"] == nil || after["lastUsedAt"] != before["lastUsedAt"] {
		t.Errorf("used at %v, after a restart at %v", before["lastUsedAt"], after["lastUsedAt"])
	}
	p.close(s)
}
