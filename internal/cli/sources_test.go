// SPDX-License-Identifier: Apache-2.0

//go:build !small

package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/provider/emulate"
)

// pipelineSource returns the lines of the source document about pipelines.
func pipelineSource(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(cmp.Or(os.Getenv("ROUX_SHARED"), "../../../shared"), "sources", "recursive-pipelines.txt"))
	if err != nil {
		t.Skipf("the source documents are not here (ROUX_SHARED): %v", err)
	}
	return strings.Split(strings.ReplaceAll(string(text), "\r\n", "\n"), "\n")
}

// A sourceBlock is a definition of the document, which has lost its indentation: indent has that of each line,
// in levels. Some have lost their line breaks, too.
type sourceBlock struct {
	after, first string // a line, and how the first line of the block after it begins
	indent       string
	oneLine      bool
}

// sourceBlocks are the definitions of the document.
var sourceBlocks = map[string]sourceBlock{
	"complete_analysis":    {after: "# Proposed approach", first: "workflow:", indent: "0112333233323332"[:0] + "011233323332333"[:0] + "01123332333" + "2333"},
	"sub_workflow":         {after: "Step Definition Schema", first: "- name:", indent: "01111" + "12" + "3444" + "1222222222" + "1222222222222" + "122222222222222222"},
	"data_analysis":        {after: "# main.yaml", first: "workflow:", indent: "011" + "2333443" + "44" + "2333344"},
	"adaptive_processing":  {after: "Conditional Sub-Pipelines", first: "workflow:", indent: "011" + "233" + "233334" + "233334"},
	"recursive_analyzer":   {after: "Recursive Processing", first: "workflow:", indent: "011" + "233" + "23333" + "4555656"},
	"resilient_processor":  {after: "Error Recovery Pattern", first: "workflow:", indent: "011" + "233334"[:5] + "4" + "23333" + "44"},
	"shared_analysis":      {after: "Extract Repeated Patterns", first: "# Before:", oneLine: true, indent: "011" + "233"},
	"main_workflow":        {after: "Decompose Large Pipelines", first: "# Before:", oneLine: true, indent: "011" + "233" + "233"},
}
