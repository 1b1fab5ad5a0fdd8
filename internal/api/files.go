// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/rest"
	"github.com/roux-engine/roux/internal/workers"
)

// A FileResource is a file as it is described when it is uploaded (X158, X159).
type FileResource struct {
	Hash      string          `json:"hash" example:"sha256_9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"`
	Name      string          `json:"name"`
	MimeType  string          `json:"mimeType"`
	SizeBytes int64           `json:"sizeBytes"`
	Extended  json.RawMessage `json:"extended,omitempty" doc:"What inspection found, such as pageCount."`
	UsedAt    *time.Time      `json:"usedAt,omitempty" doc:"When it was last uploaded or named."`
	Runs      []string        `json:"runs,omitempty" doc:"Runs that name it, at most 20."`
}

func fileOf(f action.FileInfo) FileResource {
	return FileResource{Hash: f.Hash, Name: f.Name, MimeType: f.MimeType, SizeBytes: f.Size, Extended: f.Extended}
}

// maxRuns bounds FileResource.Runs.
const maxRuns = 20

func (s *Server) fileRoutes() {
	upload := rest.Op("files-upload", http.MethodPost, "/v1/files", "Upload a file; its content is the body")
	upload.DefaultStatus = http.StatusCreated
	upload.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
		"application/octet-stream": {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}},
	}}
	write := rest.Needs(access.FilesWrite)
	write.Accepts, write.Stream, write.Once = []string{"*/*"}, true, rest.OnceNot
	rest.Handle(s.rest, upload, write, s.uploadFile)
	read := rest.Needs(access.FilesRead)
	rest.Handle(s.rest, rest.Op("files-list", http.MethodGet, "/v1/files", "List files"), read, s.listFiles)
	rest.Handle(s.rest, rest.Op("files-get", http.MethodGet, "/v1/files/{hash}", "Describe a file"), read, s.getFile)
	content := rest.Op("files-content", http.MethodGet, "/v1/files/{hash}/content", "Download a file, or a range of it")
	content.Responses = map[string]*huma.Response{
		"200": {Description: "The content.", Content: map[string]*huma.MediaType{"*/*": {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}}},
		"206": {Description: "A range of it.", Content: map[string]*huma.MediaType{"*/*": {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}}},
	}
	stream := rest.Needs(access.FilesRead)
	stream.Stream = true
	rest.Handle(s.rest, content, stream, s.fileContent)
	rest.Handle(s.rest, rest.Op("files-delete", http.MethodDelete, "/v1/files/{hash}", "Delete a file that no run names"), rest.Needs(access.FilesWrite), s.deleteFile)
}

type uploadIn struct {
	workers.FileLease
	Name   string `query:"name" maxLength:"255" doc:"Name of the file, for people and for actions."`
	Digest string `header:"X-Content-Sha256" maxLength:"71" doc:"SHA-256 of the content, hexadecimal; an upload with another one is refused."`
	Type   string `header:"Content-Type" maxLength:"200" doc:"Type of the file, which is compared with its content."`
}

type fileFound struct {
	Location string `header:"Location"`
	ETag     string `header:"ETag"`
	Body     FileResource
}

func (s *Server) uploadFile(ctx context.Context, in *uploadIn) (*fileFound, error) {
	account, err := in.Account(ctx, s.cfg.Node.Workers)
	if err != nil {
		return nil, err
	}
	r := rest.From(ctx)
	body := &paced{r: r.HTTP.Body, ctl: http.NewResponseController(r.Writer), step: stepTime(ctx), end: time.Now().Add(max(patience, stepTime(ctx)))}
	_ = body.ctl.SetReadDeadline(body.deadline(time.Now())) // also if nothing of it is read
	f, err := s.cfg.Node.Files.Put(ctx, account, body, in.Name, mediaType(in.Type))
	if err != nil {
		return nil, s.rest.Late(ctx, err)
	}
	if want := strings.TrimPrefix(strings.ToLower(in.Digest), "sha256_"); want != "" && "sha256_"+want != f.Hash {
		err := fault.New(fault.RequestInvalid, "the content has another SHA-256 than the request says: it is %s", f.Hash)
		err.Remedy = "Send the file again: it was changed on the way, or the header belongs to another file. What arrived is kept as an unnamed upload."
		return nil, err
	}
	return &fileFound{Location: "/v1/files/" + f.Hash, ETag: `"` + f.Hash + `"`, Body: fileOf(f)}, nil
}

// mediaType is what the client says of the type of a file; "" lets the content decide.
func mediaType(header string) string {
	kind, _, _ := strings.Cut(header, ";")
	if kind = strings.TrimSpace(kind); kind == "application/octet-stream" || kind == "application/x-www-form-urlencoded" {
		return ""
	}
	return kind
}

// userTime is how long the user at the socket may pause: a file is piped in and out at any pace.
// Tests shorten it.
var userTime = time.Hour

// stepTime is how long the client of a request may take for one part of a file: no longer
// than a whole upload may be slow.
func stepTime(ctx context.Context) time.Duration {
	if access.From(ctx).Local {
		return userTime
	}
	return min(slowest, patience)
}

// slowBytes is how many bytes of an upload must come in a second, on average.
const slowBytes = 1 << 10

// patience is how long an upload may be slower. Tests shorten it.
var patience = 5 * time.Minute

// paced is the body of an upload, which may take as long as bytes arrive. One that comes drop by
// drop ends, because it holds a connection and a place on the disk (A08).
type paced struct {
	r    io.Reader
	ctl  *http.ResponseController
	step time.Duration // within which something comes
	end  time.Time     // of the upload, if nothing more came; each byte moves it
	rest int           // bytes that have not moved it yet
}

func (p *paced) Read(b []byte) (int, error) {
	_ = p.ctl.SetReadDeadline(p.deadline(time.Now())) // a recorder in a test has no deadlines
	n, err := p.r.Read(b)
	p.rest += n
	p.end = p.end.Add(time.Duration(p.rest/slowBytes) * time.Second)
	p.rest %= slowBytes
	return n, err
}

// deadline is when the next bytes must have come.
func (p *paced) deadline(now time.Time) time.Time {
	if at := now.Add(p.step); at.Before(p.end) {
		return at
	}
	return p.end
}

type filesIn struct {
	rest.Paging
	Name string `query:"name" maxLength:"255" doc:"Only files with this text in their name."`
	Type string `query:"type" maxLength:"100" doc:"Only files of this media type, or of a pattern such as image/*."`
}

func (s *Server) listFiles(ctx context.Context, in *filesIn) (*rest.Listed[FileResource], error) {
	list := "files " + rest.Account(ctx) + " " + in.Name + " " + in.Type
	place, err := s.rest.Place(list, in.Cursor)
	if err != nil {
		return nil, err
	}
	q := blob.Query{Name: in.Name, Type: in.Type, Limit: in.Limit + 1}
	if hash, at, ok := strings.Cut(place, " "); ok {
		nanos, err := strconv.ParseInt(at, 10, 64)
		if err != nil {
			return nil, fault.New(fault.RequestMalformed, "the cursor is not one of this list")
		}
		q.After = blob.Entry{Info: action.FileInfo{Hash: hash}, Stored: time.Unix(0, nanos)}
	}
	entries, err := s.cfg.Node.Files.List(ctx, rest.Account(ctx), q)
	if err != nil {
		return nil, err
	}
	next := ""
	if len(entries) > in.Limit {
		entries = entries[:in.Limit]
		last := &entries[in.Limit-1]
		next = last.Info.Hash + " " + strconv.FormatInt(last.Stored.UnixNano(), 10)
	}
	data := make([]FileResource, len(entries))
	for i, e := range entries {
		data[i], data[i].UsedAt = fileOf(e.Info), rest.StampOr(e.Stored.UnixMicro())
	}
	return rest.PageOf(ctx, s.rest, list, next, data), nil
}

// A FilePath names a file.
type FilePath struct {
	Hash string `path:"hash" maxLength:"71" doc:"sha256_ and the SHA-256 of the content."`
}

// file returns a file of an account by its whole hash.
func (s *Server) file(ctx context.Context, account, hash string) (blob.Entry, error) {
	e, err := s.cfg.Node.Files.Find(ctx, account, hash)
	if err == nil && e.Info.Hash != hash {
		err = fault.New(fault.FileNotFound, "the account has no such file")
	}
	return e, err
}

// A LeasedFile names a file, which a worker may read with its lease.
type LeasedFile struct {
	FilePath
	workers.FileLease
}

// find returns a file with the account that it belongs to.
func (s *Server) find(ctx context.Context, in *LeasedFile) (account string, e blob.Entry, err error) {
	if account, err = in.Account(ctx, s.cfg.Node.Workers); err == nil {
		e, err = s.file(ctx, account, in.Hash)
	}
	return account, e, err
}

func (s *Server) getFile(ctx context.Context, in *LeasedFile) (*fileFound, error) {
	account, e, err := s.find(ctx, in)
	if err != nil {
		return nil, err
	}
	out := &fileFound{ETag: `"` + e.Info.Hash + `"`, Body: fileOf(e.Info)}
	out.Body.Runs, err = s.cfg.Node.Engine.Files().NamedBy(ctx, account, e.Info.Hash, maxRuns)
	return out, err
}

type contentIn struct {
	LeasedFile
	Range string `header:"Range" maxLength:"100" doc:"One range of bytes, such as bytes=0-1023."`
}

func (s *Server) fileContent(ctx context.Context, in *contentIn) (*streamOut, error) {
	account, e, err := s.find(ctx, &in.LeasedFile)
	if err != nil {
		return nil, err
	}
	from, n, part, err := rest.ByteRange(in.Range, e.Info.Size)
	if err != nil {
		p := s.rest.Problem(ctx, err)
		p.Set("Content-Range", "bytes */"+strconv.FormatInt(e.Info.Size, 10))
		return nil, p
	}
	var r io.ReadCloser
	if part {
		r, _, err = s.cfg.Node.Files.Part(ctx, account, e.Info.Hash, from, n)
	} else {
		r, err = s.cfg.Node.Files.Open(ctx, account, e.Info.Hash) // it checks the hash
	}
	if err != nil {
		return nil, err
	}
	content := bufio.NewReader(r)
	if _, err := content.Peek(1); part && err != nil { // the first piece may be damaged
		return nil, errors.Join(err, r.Close())
	}
	return &streamOut{func(h huma.Context) {
		defer func() { _ = r.Close() }()
		// Nothing that a file contains may run in the origin of the server (A22).
		h.SetHeader("Content-Type", e.Info.MimeType)
		h.SetHeader("Content-Disposition", "attachment")
		h.SetHeader("Content-Security-Policy", "sandbox; default-src 'none'")
		h.SetHeader("Cache-Control", "private, immutable, max-age=86400")
		h.SetHeader("ETag", `"`+e.Info.Hash+`"`)
		h.SetHeader("Accept-Ranges", "bytes")
		h.SetHeader("Content-Length", strconv.FormatInt(n, 10))
		status := http.StatusOK
		if part {
			h.SetHeader("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, from+n-1, e.Info.Size))
			status = http.StatusPartialContent
		}
		h.SetStatus(status)
		w := rest.From(ctx).Writer
		if _, err := io.Copy(&pacedWriter{w, http.NewResponseController(w), stepTime(ctx)}, content); err != nil {
			// The client sees fewer bytes than announced.
			s.cfg.Logger.WarnContext(ctx, "a file was not sent to its end", "request", rest.From(ctx).ID, "error", err)
			panic(http.ErrAbortHandler)
		}
	}}, nil
}

// pacedWriter is the target of a download, which may take as long as the client reads.
type pacedWriter struct {
	w    io.Writer
	ctl  *http.ResponseController
	step time.Duration // within which the client takes something
}

func (p *pacedWriter) Write(b []byte) (int, error) {
	_ = p.ctl.SetWriteDeadline(time.Now().Add(p.step)) // a recorder in a test has no deadlines
	return p.w.Write(b)
}

func (s *Server) deleteFile(ctx context.Context, in *FilePath) (*struct{}, error) {
	e, err := s.file(ctx, rest.Account(ctx), in.Hash)
	if err != nil {
		return nil, err
	}
	return nil, s.cfg.Node.Engine.Files().RemoveFile(ctx, rest.Account(ctx), e.Info.Hash)
}
