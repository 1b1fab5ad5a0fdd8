// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"context"
	"net/netip"
	"slices"
	"syscall"

	"code.dny.dev/ssrf"

	"github.com/roux-engine/roux/fault"
)

// Variable is the environment variable that allows ranges, for messages.
const Variable = "ROUX_EGRESS_ALLOW"

// A guard refuses connections to addresses and ports that are not allowed.
type guard struct {
	allow  []netip.Prefix
	public *ssrf.Guardian
}

func newGuard(allow []netip.Prefix) *guard {
	v4, v6 := splitByFamily(allow)
	return &guard{
		allow: allow,
		// check checks ports itself, because services also use other ports than 80
		// and 443.
		public: ssrf.New(ssrf.WithAnyPort(), ssrf.WithAllowedV4Prefixes(v4...), ssrf.WithAllowedV6Prefixes(v6...)),
	}
}

// control checks the address that is about to be passed to the kernel.
func (g *guard) control(_ context.Context, network, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil || network != "tcp4" && network != "tcp6" {
		return refused("a connection to %s over %s is refused: only TCP to an IP address is allowed", address, network)
	}
	return g.check(at)
}

func (g *guard) check(at netip.AddrPort) error {
	ip := at.Addr()
	switch {
	case ip.Zone() != "":
		return refused("%s is refused: an address with a zone is one of this machine's own networks", at)
	case g.public.SafeAddr(ip) != nil:
		return refused("%s is refused: %s is no public address; the operator can open its range, for example with %s=%s",
			at, ip, Variable, netip.PrefixFrom(ip, ip.BitLen()))
	case g.isAllowed(ip) && at.Port() != 0:
		return nil
	case !usablePort(at.Port()):
		return refused("%s is refused: port %d belongs to another protocol than HTTP; 80, 443 and most ports from 1024 up are allowed",
			at, at.Port())
	}
	return nil
}

func (g *guard) isAllowed(ip netip.Addr) bool {
	return slices.ContainsFunc(g.allow, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// blockedPorts are ports from 1024 up of other protocols that could misinterpret an HTTP
// request. Browsers block the same ports (https://fetch.spec.whatwg.org/#port-blocking).
var blockedPorts = []uint16{
	1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080,
}

// usablePort reports whether HTTP may be used on a port of a public address.
func usablePort(port uint16) bool {
	if port < 1024 {
		return port == 80 || port == 443
	}
	return !slices.Contains(blockedPorts, port)
}

func refused(format string, args ...any) *fault.Error {
	return fault.New(fault.EgressRefused, format, args...)
}
