// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"path/filepath"

	"github.com/roux-engine/roux/fault"
)

// The forms of -o that only validate has: SARIF 2.1.0, and annotations for
// GitHub.
const (
	asSARIF  = "sarif"
	asGitHub = "github"
)

type sarifLog struct {
	Schema  string     `json:"$schema"`
	Version string     `json:"version"`
	Runs    []sarifRun `json:"runs"`
}

type sarifRun struct {
	Tool struct {
		Driver struct {
			Name    string `json:"name"`
			Version string `json:"version"`
		} `json:"driver"`
	} `json:"tool"`
	ColumnKind string        `json:"columnKind"`
	Results    []sarifResult `json:"results"`
}

type sarifResult struct {
	RuleID    string          `json:"ruleId"`
	Level     string          `json:"level"`
	Message   sarifText       `json:"message"`
	Locations []sarifLocation `json:"locations,omitempty"`
}

type sarifText struct {
	Text string `json:"text"`
}

type sarifLocation struct {
	Physical struct {
		Artifact struct {
			URI string `json:"uri"`
		} `json:"artifactLocation"`
		Region *sarifRegion `json:"region,omitempty"`
	} `json:"physicalLocation"`
}

type sarifRegion struct {
	StartLine   int `json:"startLine"`
	StartColumn int `json:"startColumn"`
	EndColumn   int `json:"endColumn"`
}

// sarif returns diagnostics as a SARIF log.
func sarif(list []validated) sarifLog {
	run := sarifRun{ColumnKind: "unicodeCodePoints", Results: []sarifResult{}}
	run.Tool.Driver.Name, run.Tool.Driver.Version = "roux", thisBuild().Version
	for _, v := range list {
		for _, d := range v.Diagnostics {
			r := sarifResult{RuleID: string(d.Code) + "/" + d.Rule, Level: d.Severity.String(), Message: sarifText{diagnosticText(d)}}
			var at sarifLocation
			at.Physical.Artifact.URI = filepath.ToSlash(v.File)
			if d.Pos.Line > 0 {
				col := max(1, d.Pos.Col)
				at.Physical.Region = &sarifRegion{d.Pos.Line, col, col + max(1, d.Pos.Len)}
			}
			r.Locations = append(r.Locations, at)
			run.Results = append(run.Results, r)
		}
	}
	return sarifLog{"https://json.schemastore.org/sarif-2.1.0.json", "2.1.0", []sarifRun{run}}
}

func diagnosticText(d fault.Diagnostic) string {
	if d.Hint != "" {
		return d.Msg + "; " + d.Hint
	}
	return d.Msg
}
