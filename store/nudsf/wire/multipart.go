package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"strings"
)

// Content-Ids of the parts that are not blocks.
const (
	partMeta       = "meta"
	partDescriptor = "descriptor"
)

// maxPartHeader bounds the headers of one part, in bytes.
const maxPartHeader = 4 << 10

// ReadRecord reads a record from a multipart/mixed body: the meta part first, then
// any number of blocks (TS 29.598 clause 6.1.2.4). The error is a *Problem.
func ReadRecord(contentType string, body io.Reader, l Limits) (Record, error) {
	parts, err := newParts(contentType, body, l)
	if err != nil {
		return Record{}, err
	}
	return parts.record()
}

// ReadNotification reads the body of a notification: the descriptor part, then a record. The error
// is a *Problem.
func ReadNotification(contentType string, body io.Reader, l Limits) (Notification, error) {
	parts, err := newParts(contentType, body, l)
	if err != nil {
		return Notification{}, err
	}
	_, id, data, err := parts.next()
	if errors.Is(err, io.EOF) {
		return Notification{}, BadParam(CauseIEMissing, partDescriptor, "the body has no parts; the descriptor is first")
	}
	if err != nil {
		return Notification{}, err
	}
	var n Notification
	if id != partDescriptor {
		return n, BadParam(CauseIEMissing, partDescriptor, "the first part has Content-Id %q", id)
	}
	if err := decode(data, &n.Descriptor); err != nil {
		return n, BadParam(CauseMessageFormat, partDescriptor, "%v", err)
	}
	n.Record, err = parts.record()
	return n, err
}

// ReadBlocks reads a multipart body that has only blocks. The error is a *Problem.
func ReadBlocks(contentType string, body io.Reader, l Limits) ([]Block, error) {
	parts, err := newParts(contentType, body, l)
	if err != nil {
		return nil, err
	}
	return parts.blocks()
}

// parts reads the parts of a body in order, within limits.
type parts struct {
	reader *multipart.Reader
	limits Limits
	bytes  int // of all parts so far
}

func newParts(contentType string, body io.Reader, l Limits) (*parts, error) {
	media, params, err := mime.ParseMediaType(contentType)
	if err != nil || !strings.HasPrefix(media, "multipart/") {
		return nil, NewProblem(http.StatusUnsupportedMediaType, "",
			"the body is %q; send multipart/mixed with a boundary, the meta part first", contentType)
	}
	if params["boundary"] == "" {
		return nil, BadParam(CauseMessageFormat, "Content-Type", "has no boundary")
	}
	return &parts{reader: multipart.NewReader(body, params["boundary"]), limits: l}, nil
}

// next returns the headers, ID and content of the next part; io.EOF after the last.
func (p *parts) next() (textproto.MIMEHeader, string, []byte, error) {
	part, err := p.reader.NextRawPart()
	if errors.Is(err, io.EOF) {
		return nil, "", nil, io.EOF
	}
	if err != nil {
		return nil, "", nil, bodyProblem(err)
	}
	size := 0
	for name, values := range part.Header {
		for _, v := range values {
			size += len(name) + len(v)
		}
	}
	if size > maxPartHeader {
		return nil, "", nil, BadParam(CauseMessageFormat, "part", "headers are over %d bytes", maxPartHeader)
	}
	data, err := io.ReadAll(io.LimitReader(part, int64(p.limits.BlockBytes)+1))
	if err != nil {
		return nil, "", nil, bodyProblem(err)
	}
	if len(data) > p.limits.BlockBytes {
		return nil, "", nil, tooLarge("a part", p.limits.BlockBytes)
	}
	if p.bytes += len(data); p.bytes > p.limits.Bytes {
		return nil, "", nil, tooLarge("the record", p.limits.Bytes)
	}
	id := strings.TrimSpace(part.Header.Get("Content-Id"))
	if strings.HasPrefix(id, "<") && strings.HasSuffix(id, ">") { // RFC 2045 section 7
		id = id[1 : len(id)-1]
	}
	return part.Header, id, data, nil
}

func (p *parts) record() (Record, error) {
	header, id, data, err := p.next()
	if errors.Is(err, io.EOF) {
		return Record{}, BadParam(CauseIEMissing, partMeta, "the body has no parts; the meta part is first, and may be empty")
	}
	if err != nil {
		return Record{}, err
	}
	if id != "" && id != partMeta {
		return Record{}, BadParam(CauseIEMissing, partMeta, "the first part has Content-Id %q; the meta part is first", id)
	}
	if media, _, err := mime.ParseMediaType(header.Get("Content-Type")); err != nil || media != TypeJSON {
		return Record{}, BadParam(CauseIEIncorrect, partMeta, "is %q, not application/json", header.Get("Content-Type"))
	}
	var r Record
	if r.Meta, err = ParseMeta(data, p.limits); err != nil {
		return Record{}, err
	}
	r.Blocks, err = p.blocks()
	return r, err
}

func (p *parts) blocks() ([]Block, error) {
	var blocks []Block
	for {
		header, id, data, err := p.next()
		if errors.Is(err, io.EOF) {
			return blocks, nil
		}
		if err != nil {
			return nil, err
		}
		if len(blocks) == p.limits.Blocks {
			return nil, NewProblem(http.StatusRequestEntityTooLarge, "", "more than %d blocks", p.limits.Blocks)
		}
		if err := CheckID("Content-Id", id, p.limits); err != nil {
			return nil, err
		}
		for i := range blocks {
			if blocks[i].ID == id {
				return nil, BadParam(CauseIEIncorrect, "Content-Id", "two blocks are %q", id)
			}
		}
		blocks = append(blocks, Block{
			ID: id, ContentType: header.Get("Content-Type"), Encoding: header.Get("Content-Transfer-Encoding"), Content: data,
		})
	}
}

// bodyProblem returns the problem for a body that could not be read.
func bodyProblem(err error) error {
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return tooLarge("the body", int(large.Limit))
	}
	return BadParam(CauseMessageFormat, "body", "is not a whole multipart message: %v", err)
}

func tooLarge(what string, limit int) *Problem {
	return NewProblem(http.StatusRequestEntityTooLarge, "", "%s is over %d bytes", what, limit)
}

// A partWriter writes parts to a buffer.
type partWriter struct {
	buf    bytes.Buffer
	writer *multipart.Writer
	err    error
}

func newPartWriter(size int) *partWriter {
	w := &partWriter{}
	w.buf.Grow(size)
	w.writer = multipart.NewWriter(&w.buf)
	return w
}

func (w *partWriter) part(id, contentType, encoding string, data []byte) {
	if w.err != nil {
		return
	}
	header := textproto.MIMEHeader{"Content-Type": {contentType}, "Content-Id": {id}}
	if encoding != "" {
		header["Content-Transfer-Encoding"] = []string{encoding}
	}
	part, err := w.writer.CreatePart(header)
	if err == nil {
		_, err = part.Write(data)
	}
	w.err = err
}

func (w *partWriter) block(b Block) {
	contentType, encoding := b.ContentType, b.Encoding
	if contentType == "" {
		contentType = TypeOctets
	}
	if encoding == "" {
		encoding = "binary"
	}
	w.part(b.ID, contentType, encoding, b.Content)
}

func (w *partWriter) close(subtype string) (string, []byte, error) {
	if w.err == nil {
		w.err = w.writer.Close()
	}
	if w.err != nil {
		return "", nil, fmt.Errorf("write multipart body: %w", w.err)
	}
	return "multipart/" + subtype + "; boundary=" + w.writer.Boundary(), w.buf.Bytes(), nil
}

// Encode returns the content type and body of a record.
func (r *Record) Encode() (contentType string, body []byte, err error) {
	w := newPartWriter(r.size())
	if err := w.record(r); err != nil {
		return "", nil, err
	}
	return w.close("mixed")
}

func (w *partWriter) record(r *Record) error {
	meta, err := marshal(r.Meta)
	if err != nil {
		return err
	}
	w.part(partMeta, TypeJSON, "", meta)
	for _, b := range r.Blocks {
		w.block(b)
	}
	return nil
}

func (r *Record) size() int {
	n := 1 << 10
	for _, b := range r.Blocks {
		n += len(b.Content) + 256
	}
	return n
}

// EncodeBlocks returns the content type and body of blocks without meta: multipart/parallel.
func EncodeBlocks(blocks []Block) (contentType string, body []byte, err error) {
	w := newPartWriter((&Record{Blocks: blocks}).size())
	for _, b := range blocks {
		w.block(b)
	}
	return w.close("parallel")
}

// Encode returns the content type and body of a notification.
func (n *Notification) Encode() (contentType string, body []byte, err error) {
	w := newPartWriter(n.Record.size())
	descriptor, err := marshal(n.Descriptor)
	if err != nil {
		return "", nil, err
	}
	w.part(partDescriptor, TypeJSON, "", descriptor)
	if err := w.record(&n.Record); err != nil {
		return "", nil, err
	}
	return w.close("mixed")
}
