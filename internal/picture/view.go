// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"github.com/roux-engine/roux/internal/layout"
	"github.com/roux-engine/roux/internal/ledger"
)

// A View is a picture for programs: an object with what SVG draws. Lengths are
// in pixels. Two points of a route are joined by a straight line if they share
// x (or y, when the picture leads right), else by a curve. Fields are only ever
// added.
type View struct {
	Name      string      `json:"name"`
	Note      string      `json:"note,omitempty"`
	Imported  bool        `json:"imported,omitempty"`
	Direction string      `json:"direction"` // down | right
	Width     int         `json:"width"`
	Height    int         `json:"height"`
	Nodes     []NodeView  `json:"nodes"`
	Groups    []GroupView `json:"groups"`
	Edges     []EdgeView  `json:"edges"`
}

// A NodeView is a step and its position.
type NodeView struct {
	layout.Box
	Kind     string         `json:"kind"`
	Label    string         `json:"label"`
	Lines    []string       `json:"lines"`
	Group    string         `json:"group,omitempty"`
	Status   string         `json:"status,omitempty"` // of a run
	Counts   map[string]int `json:"counts,omitempty"` // of a step in a loop, or the iterations of one
	Attempts int            `json:"attempts,omitempty"`
	Ms       float64        `json:"durationMs,omitempty"`
	Cost     ledger.Amount  `json:"cost,omitempty"`
	Detail   string         `json:"detail,omitempty"` // the error, what it waits for, or why it was skipped
	Untaken  bool           `json:"untaken,omitempty"`
	Critical bool           `json:"critical,omitempty"`
}

// A GroupView is a group and its box.
type GroupView struct {
	layout.Box
	Role    string `json:"role"`
	Title   string `json:"title,omitempty"`
	Group   string `json:"group,omitempty"`
	Untaken bool   `json:"untaken,omitempty"`
}

// An EdgeView is an edge and its route.
type EdgeView struct {
	From     string         `json:"from"`
	To       string         `json:"to"`
	Kind     EdgeKind       `json:"kind"`
	Label    string         `json:"label,omitempty"`
	Taken    bool           `json:"taken,omitempty"`
	Untaken  bool           `json:"untaken,omitempty"`
	Critical bool           `json:"critical,omitempty"`
	Points   []layout.Point `json:"points"`
}

// View returns the picture as an object.
func (p *Picture) View(o Options) (*View, error) {
	d, err := place(p.pixelGraph(o))
	if err != nil {
		return nil, err
	}
	v := &View{
		Name: oneLine(p.Name), Note: oneLine(p.Note), Imported: p.Imported, Direction: "down", Width: d.W, Height: d.H,
		Nodes: []NodeView{}, Groups: []GroupView{}, Edges: []EdgeView{},
	}
	if o.Direction == layout.Right {
		v.Direction = "right"
	}
	for i := range p.Nodes {
		n := &p.Nodes[i]
		nv := NodeView{
			Box: d.boxes[n.ID], Kind: n.Kind, Label: n.Label, Lines: n.Lines, Group: n.Group,
			Status: p.status(n), Untaken: n.Untaken, Critical: n.Critical,
		}
		if s := n.State; s != nil {
			nv.Attempts, nv.Ms, nv.Cost, nv.Detail = s.Attempts, float64(s.Micros)/1000, s.Cost, s.detailLine()
			if s.aggregated(n.Repeated) {
				nv.Counts = s.Counts
			}
		}
		v.Nodes = append(v.Nodes, nv)
	}
	for i := range p.Groups {
		g := &p.Groups[i]
		v.Groups = append(v.Groups, GroupView{Box: d.boxes[g.ID], Role: g.Role, Title: g.Title, Group: g.Group, Untaken: g.Untaken})
	}
	for i := range p.Edges {
		e := &p.Edges[i]
		v.Edges = append(v.Edges, EdgeView{
			From: e.From, To: e.To, Kind: e.Kind, Label: e.Label,
			Taken: e.Taken, Untaken: e.Untaken, Critical: e.Critical, Points: d.routes[e.ID],
		})
	}
	return v, nil
}
