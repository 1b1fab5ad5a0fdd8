// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"net/netip"
	"strings"

	"github.com/roux-engine/roux/fault"
)

// ParseAllow parses the value of ROUX_EGRESS_ALLOW: addresses and prefixes separated by
// commas, such as "127.0.0.1/32,10.0.0.0/8,::1". "" means none. An error has the code
// fault.Usage and names the invalid part.
func ParseAllow(text string) ([]netip.Prefix, error) {
	var allow []netip.Prefix
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		p, err := netip.ParsePrefix(part)
		if err != nil {
			ip, notIP := netip.ParseAddr(part)
			if notIP != nil || ip.Zone() != "" {
				return nil, fault.New(fault.Usage, `%s: %q is no address range: want for example "127.0.0.1/32,10.0.0.0/8"`, Variable, part)
			}
			p = netip.PrefixFrom(ip, ip.BitLen())
		}
		if p.Addr().Is4In6() {
			return nil, fault.New(fault.Usage, "%s: %q has to be written %s", Variable, part, p.Addr().Unmap())
		}
		if p != p.Masked() {
			return nil, fault.New(fault.Usage, "%s: %q has bits beyond its length: want %s", Variable, part, p.Masked())
		}
		allow = append(allow, p)
	}
	return allow, nil
}
