// SPDX-License-Identifier: Apache-2.0

package lsp

import "encoding/json"

// The types of the protocol, as far as they are used. Names and fields are those of the specification.

type position struct {
	Line      int `json:"line"`
	Character int `json:"character"`
}

type textRange struct {
	Start position `json:"start"`
	End   position `json:"end"`
}

type location struct {
	URI   string    `json:"uri"`
	Range textRange `json:"range"`
}

type textEdit struct {
	Range   textRange `json:"range"`
	NewText string    `json:"newText"`
}

type workspaceEdit struct {
	Changes map[string][]textEdit `json:"changes"`
}

type textDocument struct {
	URI     string `json:"uri"`
	Version int    `json:"version,omitempty"`
	Text    string `json:"text,omitempty"`
}

// documentParams are the parameters of requests about a document, a place or a range in it.
type documentParams struct {
	TextDocument textDocument `json:"textDocument"`
	Position     position     `json:"position"`
	Range        textRange    `json:"range"`
	NewName      string       `json:"newName"`
	Context      struct {
		IncludeDeclaration bool `json:"includeDeclaration"`
	} `json:"context"`
	ContentChanges []contentChange `json:"contentChanges"`
}

type contentChange struct {
	Range *textRange `json:"range"`
	Text  string     `json:"text"`
}

type initializeParams struct {
	Capabilities struct {
		General struct {
			PositionEncodings []string `json:"positionEncodings"`
		} `json:"general"`
	} `json:"capabilities"`
}

type markup struct {
	Kind  string `json:"kind"`
	Value string `json:"value"`
}

type hoverResult struct {
	Contents markup     `json:"contents"`
	Range    *textRange `json:"range,omitempty"`
}

// The kinds of completion items.
const (
	itemFunction = 3
	itemField    = 5
	itemVariable = 6
	itemModule   = 9
	itemProperty = 10
	itemValue    = 12
	itemFile     = 17
	itemRef      = 18
)

type completionItem struct {
	Label         string    `json:"label"`
	Kind          int       `json:"kind"`
	Detail        string    `json:"detail,omitempty"`
	Documentation *markup   `json:"documentation,omitempty"`
	SortText      string    `json:"sortText,omitempty"`
	TextEdit      *textEdit `json:"textEdit,omitempty"`
}

type completionList struct {
	IsIncomplete bool             `json:"isIncomplete"`
	Items        []completionItem `json:"items"`
}

type diagnostic struct {
	Range           textRange       `json:"range"`
	Severity        int             `json:"severity"`
	Code            string          `json:"code"`
	CodeDescription *codeLink       `json:"codeDescription,omitempty"`
	Source          string          `json:"source"`
	Message         string          `json:"message"`
	Related         []relatedPlace  `json:"relatedInformation,omitempty"`
	Data            json.RawMessage `json:"data,omitempty"`
}

type codeLink struct {
	Href string `json:"href"`
}

type relatedPlace struct {
	Location location `json:"location"`
	Message  string   `json:"message"`
}

type publishParams struct {
	URI         string       `json:"uri"`
	Version     *int         `json:"version,omitempty"`
	Diagnostics []diagnostic `json:"diagnostics"`
}

type codeAction struct {
	Title       string        `json:"title"`
	Kind        string        `json:"kind"`
	Diagnostics []diagnostic  `json:"diagnostics"`
	IsPreferred bool          `json:"isPreferred"`
	Edit        workspaceEdit `json:"edit"`
}

type documentSymbol struct {
	Name           string           `json:"name"`
	Detail         string           `json:"detail,omitempty"`
	Kind           int              `json:"kind"`
	Range          textRange        `json:"range"`
	SelectionRange textRange        `json:"selectionRange"`
	Children       []documentSymbol `json:"children,omitempty"`
}

type prepareRename struct {
	Range       textRange `json:"range"`
	Placeholder string    `json:"placeholder"`
}

type m = map[string]any

// capabilities is what the server offers.
func capabilities(encoding string) m {
	return m{
		"positionEncoding":           encoding,
		"textDocumentSync":           m{"openClose": true, "change": 2, "save": m{"includeText": false}},
		"hoverProvider":              true,
		"completionProvider":         m{"triggerCharacters": []string{".", ":", " ", "\"", "'", "{", "|", "@"}},
		"definitionProvider":         true,
		"referencesProvider":         true,
		"renameProvider":             m{"prepareProvider": true},
		"documentSymbolProvider":     true,
		"documentFormattingProvider": true,
		"codeActionProvider":         m{"codeActionKinds": []string{"quickfix"}},
	}
}
