// SPDX-License-Identifier: Apache-2.0

//go:build !small

package jobs

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/store"
)

// The bounds of previews (I15).
const (
	maxPreview      = 4 << 20  // bytes of one as the service gives it
	maxShown        = 1 << 20  // bytes of one as it is shown
	maxAllShown     = 4 << 20  // bytes of all that are shown of a job, as of all reports of an attempt
	maxPreviewFiles = 64 << 20 // bytes of all files of previews of a job
	shownBytes      = 64       // are counted for a preview in addition to its own
)

// A previewed is what is remembered of the previews and the text of a job that were shown.
type previewed struct {
	Of    string `json:"of"`             // names the attempt; a later one begins anew
	Last  string `json:"last"`           // names the preview that was shown last
	Bytes int64  `json:"bytes"`          // of all that were shown
	Files int64  `json:"files"`          // bytes of their files
	Text  int64  `json:"text,omitempty"` // bytes of the text that its service has streamed
}

// preview shows what a job that goes on has made so far, unless that was shown last. What is
// remembered of it is written in the commit that shows it, so a preview that is the same writes
// nothing and loads no run, also after a restart.
//
// One that cannot be shown changes nothing: the job goes on, and its result is what counts.
func (k *Keeper) preview(ctx context.Context, j *Job, from journal.Source, value any) {
	err := k.tryPreview(ctx, j, from, value)
	if err != nil && !errors.Is(err, action.ErrUnsettled) {
		k.cfg.Logger.Info("a preview of a job could not be shown", "job", j.Provider+"/"+j.ID, "run", j.Run, "err", err)
	}
}

func (k *Keeper) tryPreview(ctx context.Context, j *Job, from journal.Source, value any) error {
	v, sum, err := read(value)
	if err != nil {
		return err
	}
	name := j.Provider + "/" + j.ID
	release, err := k.hold(ctx, name)
	if err != nil {
		return err
	}
	defer release()
	if k.lookedAt(name, sum) {
		return nil
	}
	tried := ""
	defer func() { k.endPreview(name, tried) }()
	was, err := k.lastPreview(ctx, j)
	if err != nil {
		return err
	}
	if was.Last == sum {
		tried = sum
		return nil
	}
	shown := *j
	shown.Mark = &journal.Mark{Until: j.Expires + day}
	result := func(ctx context.Context, t *action.Task) (action.Result, error) {
		data, next, err := was.show(ctx, t.Files, v, sum)
		if err != nil {
			return action.Result{}, fmt.Errorf("%w: %w", action.ErrUnsettled, err)
		}
		shown.Mark.Data = next
		cmp.Or(t.Report, action.Discard).Preview(json.RawMessage(data))
		return action.Result{}, action.ErrUnsettled
	}
	err = AfterOthers(ctx, func() error { return k.cfg.Show(ctx, &shown, from, result) })
	if err == nil || errors.Is(err, action.ErrUnsettled) {
		tried = sum // also if it was flagged or is too large: nobody is asked about it again and again
	}
	return err
}

// read decodes a preview, and returns what names it.
func read(value any) (v any, sum string, err error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, "", fault.New(fault.ProviderError, "the preview is no JSON: %v", err)
	}
	if len(raw) > maxPreview {
		return nil, "", fault.New(fault.OutputTooLarge, "the preview has %d bytes, the limit is %d", len(raw), maxPreview)
	}
	if v, err = jsonx.Decode(raw, jsonx.Limits{Bytes: maxPreview, Depth: 128}); err != nil {
		return nil, "", fault.New(fault.ProviderError, "the preview is no JSON: %v", err)
	}
	if raw, err = jsonx.Canonical(v); err != nil {
		return nil, "", fault.New(fault.ProviderError, "the preview is no JSON: %v", err)
	}
	return v, short(string(raw)), nil
}

// lookedAt reports whether a preview is the one of its job that was looked at last.
func (k *Keeper) lookedAt(name, sum string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.polled[name].preview == sum
}

// endPreview remembers which preview was looked at; "" = none.
func (k *Keeper) endPreview(name, sum string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if p, ok := k.polled[name]; ok && sum != "" { // of others the record says it
		p.preview = sum
		k.polled[name] = p
	}
}

// lastPreview reads what is remembered of the previews of a job.
func (k *Keeper) lastPreview(ctx context.Context, j *Job) (previewed, error) {
	of := short(fmt.Sprintf("%s/%s/%x/%d/%d/%d", j.Account, j.Run, j.Path, j.Step, j.Gen, j.Attempt))
	r, err := k.cfg.Records.Record(ctx, recordKey(KindPreview, j.Provider, j.ID))
	if err != nil && !errors.Is(err, fault.RecordNotFound) {
		return previewed{}, err
	}
	if err == nil {
		if p, err := store.DecodeRecord[previewed](&r); err == nil && p.Of == of {
			return *p, nil
		}
	}
	return previewed{Of: of}, nil
}

// show returns a preview as it is shown, and what is remembered with it. The files of it are stored.
func (p previewed) show(ctx context.Context, files action.Files, v any, sum string) (data, next []byte, err error) {
	m := media{files: files, left: maxPreviewFiles - p.Files}
	if v, err = m.keep(ctx, v); err != nil {
		return nil, nil, err
	}
	if data, err = jsonx.Canonical(v); err != nil {
		return nil, nil, err
	}
	if len(data) > maxShown {
		return nil, nil, fault.New(fault.OutputTooLarge, "the preview has %d bytes without its files, the limit is %d", len(data), maxShown)
	}
	if p.Bytes += int64(len(data) + shownBytes); p.Bytes > maxAllShown {
		return nil, nil, fault.New(fault.OutputTooLarge, "the previews of the job have %d bytes together, the limit is %d", p.Bytes, maxAllShown)
	}
	p.Last, p.Files = sum, maxPreviewFiles-m.left
	next, err = json.Marshal(p)
	return data, next, err
}

// media stores what addresses have in themselves.
type media struct {
	files action.Files
	left  int64 // bytes that may be stored
}

// keep returns a value with the hashes of files in place of such addresses.
func (m *media) keep(ctx context.Context, v any) (any, error) {
	var err error
	switch v := v.(type) {
	case string:
		return m.store(ctx, v)
	case []any:
		out := slices.Clone(v)
		for i := range out {
			if out[i], err = m.keep(ctx, out[i]); err != nil {
				return nil, err
			}
		}
		return out, nil
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, item := range v {
			if out[name], err = m.keep(ctx, item); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	return v, nil
}

// store stores the content of an address that has it in itself, and returns the hash of the file. Any
// other text is returned as it is.
func (m *media) store(ctx context.Context, text string) (string, error) {
	rest, inline := strings.CutPrefix(text, "data:")
	head, data, ok := strings.Cut(rest, ",")
	if !inline || !ok || !strings.HasSuffix(head, ";base64") {
		return text, nil
	}
	raw, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		return text, nil
	}
	if m.left -= int64(len(raw)); m.left < 0 {
		return "", fault.New(fault.FileTooLarge, "the files of the previews of the job have more than %d MiB together", maxPreviewFiles>>20)
	}
	info, err := m.files.Put(ctx, bytes.NewReader(raw), "", "")
	return info.Hash, err
}
