// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
)

// A17: only the address passed to the kernel matters, not the form of the URL.
func TestA17_Guard(t *testing.T) {
	for _, tt := range []struct {
		address string
		ok      bool
		why     string
	}{
		{"93.184.215.14:443", true, "public"},
		{"93.184.215.14:80", true, "public"},
		{"93.184.215.14:8080", true, "services listen on other ports"},
		{"[2606:4700::1111]:443", true, "public"},
		{"93.184.215.14:25", false, "mail"},
		{"93.184.215.14:22", false, "secure shell"},
		{"93.184.215.14:6667", false, "chat"},
		{"93.184.215.14:0", false, "no port"},
		{"127.0.0.1:80", false, "loopback"},
		{"127.8.8.8:8080", false, "loopback"},
		{"0.0.0.0:80", false, "this machine"},
		{"10.1.2.3:80", false, "private"},
		{"172.16.0.1:80", false, "private"},
		{"172.31.255.255:80", false, "private"},
		{"192.168.1.1:80", false, "private"},
		{"100.64.0.1:80", false, "CGNAT"},
		{"100.127.255.255:80", false, "CGNAT"},
		{"169.254.169.254:80", false, "metadata"},
		{"192.0.0.192:80", false, "metadata of another cloud"},
		{"198.18.0.1:80", false, "benchmarks"},
		{"203.0.113.9:80", false, "documentation"},
		{"224.0.0.1:80", false, "multicast"},
		{"240.0.0.1:80", false, "reserved"},
		{"255.255.255.255:80", false, "broadcast"},
		{"[::]:80", false, "this machine"},
		{"[::1]:80", false, "loopback"},
		{"[::ffff:127.0.0.1]:80", false, "mapped loopback"},
		{"[::ffff:93.184.215.14]:80", false, "mapped"},
		{"[::127.0.0.1]:80", false, "IPv4-compatible"},
		{"[64:ff9b::7f00:1]:80", false, "NAT64"},
		{"[64:ff9b:1::7f00:1]:80", false, "local NAT64"},
		{"[2002:7f00:1::]:80", false, "6to4"},
		{"[2001:0:7f00:1::]:80", false, "Teredo"},
		{"[fd00:ec2::254]:80", false, "metadata"},
		{"[fc00::1]:80", false, "private"},
		{"[fe80::1]:80", false, "link-local"},
		{"[fe80::1%lo]:80", false, "zone"},
		{"[fec0::1]:80", false, "site-local"},
		{"[ff02::1]:80", false, "multicast"},
		{"[2001:db8::1]:80", false, "documentation"},
		{"[100::1]:80", false, "discard"},
	} {
		err := newGuard(nil).control(context.Background(), "tcp4", tt.address, nil)
		if err != nil && tt.why == "zone" && !strings.Contains(err.Error(), "an address with a zone") {
			t.Errorf("%s: %v", tt.address, err)
		}
		if (err == nil) != tt.ok || err != nil && !errors.Is(err, fault.EgressRefused) {
			t.Errorf("%s (%s): %v", tt.address, tt.why, err)
		}
	}
}

func TestA17_GuardNetworks(t *testing.T) {
	for _, network := range []string{"udp4", "unix", "tcp", "ip4:icmp"} {
		if err := newGuard(nil).control(context.Background(), network, "93.184.215.14:443", nil); !errors.Is(err, fault.EgressRefused) {
			t.Errorf("%s: %v", network, err)
		}
	}
}

// An allowed range is reachable on every port but 0; addresses outside it are
// not.
func TestA17_OpenedRanges(t *testing.T) {
	allow, err := ParseAllow("127.0.0.1/32, 10.0.0.0/8,::1,fe80::/10")
	if err != nil {
		t.Fatal(err)
	}
	for address, ok := range map[string]bool{
		"127.0.0.1:80": true, "127.0.0.1:25": true, "127.0.0.1:0": false, "127.0.0.2:80": false,
		"10.255.0.1:9000": true, "11.0.0.1:25": false, "192.168.0.1:80": false, "[::1]:80": true, "[::2]:80": false,
		"[::ffff:127.0.0.1]:80": false, "[fe80::1]:80": true, "[fe80::1%eth0]:80": false,
	} {
		if err := newGuard(allow).check(netip.MustParseAddrPort(address)); (err == nil) != ok {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestParseAllow(t *testing.T) {
	for text, want := range map[string]string{
		"127.0.0.1/32;10.0.0.0/8": `USAGE: ROUX_EGRESS_ALLOW: "127.0.0.1/32;10.0.0.0/8" is no address range: want for example "127.0.0.1/32,10.0.0.0/8"`,
		"10.0.0.0/8,localhost":    `USAGE: ROUX_EGRESS_ALLOW: "localhost" is no address range: want for example "127.0.0.1/32,10.0.0.0/8"`,
		"10.0.0.1/8":              `USAGE: ROUX_EGRESS_ALLOW: "10.0.0.1/8" has bits beyond its length: want 10.0.0.0/8`,
		"::ffff:10.0.0.1":         `USAGE: ROUX_EGRESS_ALLOW: "::ffff:10.0.0.1" has to be written 10.0.0.1`,
		"fe80::1%eth0":            `USAGE: ROUX_EGRESS_ALLOW: "fe80::1%eth0" is no address range: want for example "127.0.0.1/32,10.0.0.0/8"`,
		"10.0.0.0/33":             `USAGE: ROUX_EGRESS_ALLOW: "10.0.0.0/33" is no address range: want for example "127.0.0.1/32,10.0.0.0/8"`,
	} {
		if _, err := ParseAllow(text); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	if got, err := ParseAllow(" , "); err != nil || len(got) != 0 {
		t.Errorf("nothing: %v, %v", got, err)
	}
}
