package nudsf

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"vitrine/store/nudsf/wire"
)

func (a *API) getBlocks(w http.ResponseWriter, r *http.Request) error {
	at, err := a.place(r)
	if err != nil {
		return err
	}
	e, err := a.live(r.Context(), at)
	if err != nil || conditional(w, r, e.etag(), e.modified()) {
		return err
	}
	if len(e.Blocks) == 0 {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	contentType, body, err := wire.EncodeBlocks(e.Blocks)
	if err != nil {
		return err
	}
	send(w, http.StatusOK, contentType, body)
	return nil
}

func (a *API) blockPlace(r *http.Request) (place, string, error) {
	at, err := a.place(r)
	if err != nil {
		return at, "", err
	}
	const name = "blockId"
	id := r.PathValue(name)
	return at, id, wire.CheckID(name, id, a.Limits)
}

func noBlock(at place, id string) error {
	return wire.NewProblem(http.StatusNotFound, wire.CauseBlockNotFound, "record %q has no block %q", at.id, id)
}

func (a *API) getBlock(w http.ResponseWriter, r *http.Request) error {
	at, id, err := a.blockPlace(r)
	if err != nil {
		return err
	}
	e, err := a.live(r.Context(), at)
	if err != nil {
		return err
	}
	i := e.block(id)
	if i < 0 {
		return noBlock(at, id)
	}
	if conditional(w, r, e.blockTag(i), blockModified(e, i)) {
		return nil
	}
	sendBlock(w, http.StatusOK, e.Blocks[i])
	return nil
}

func blockModified(e *entry, i int) time.Time { return time.Unix(e.header.Blocks[i].Modified, 0) }

func blockValidators(w http.ResponseWriter, e *entry, i int) {
	wire.Validators(w.Header(), e.blockTag(i), blockModified(e, i))
}

func sendBlock(w http.ResponseWriter, status int, b wire.Block) {
	contentType := b.ContentType
	if contentType == "" {
		contentType = wire.TypeOctets
	}
	if b.Encoding != "" {
		w.Header().Set("Content-Transfer-Encoding", b.Encoding)
	}
	send(w, status, contentType, b.Content)
}

func (a *API) putBlock(w http.ResponseWriter, r *http.Request) error {
	at, id, err := a.blockPlace(r)
	if err != nil {
		return err
	}
	previous, err := getPrevious(r)
	if err != nil {
		return err
	}
	content, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(a.Limits.BlockBytes)))
	if err != nil {
		return fmt.Errorf("read block: %w", err)
	}
	block := wire.Block{ID: id, ContentType: r.Header.Get("Content-Type"), Encoding: r.Header.Get("Content-Transfer-Encoding"), Content: content}
	pre := wire.ReadPrecondition(r.Header)
	before, after, err := a.changeBlock(r, at, id, pre, func(e *entry, i int) error {
		head := blockHeader{Tag: newTag()}
		if i >= 0 {
			e.Blocks[i], e.header.Blocks[i] = block, head
		} else {
			e.Blocks, e.header.Blocks = append(e.Blocks, block), append(e.header.Blocks, head)
		}
		return a.fits(e)
	})
	if errors.Is(err, errUnmet) {
		return blockUnmet(w, before, id, previous)
	}
	if err != nil {
		return err
	}
	blockValidators(w, after, after.block(id))
	old := before.block(id)
	switch {
	case old < 0:
		w.Header().Set("Location", a.uri(at.space, "records", at.id, "blocks", id))
		w.WriteHeader(http.StatusCreated)
	case previous:
		sendBlock(w, http.StatusOK, before.Blocks[old])
	default:
		w.WriteHeader(http.StatusNoContent)
	}
	return nil
}

// fits returns an error if the record has become too large.
func (a *API) fits(e *entry) error {
	if len(e.Blocks) > a.Limits.Blocks || contentBytes(e.Blocks) > a.Limits.Bytes {
		return wire.NewProblem(http.StatusRequestEntityTooLarge, "", "the record would hold more than %d blocks or %d bytes", a.Limits.Blocks, a.Limits.Bytes)
	}
	return nil
}

// contentBytes returns the bytes of all blocks without their headers.
func contentBytes(blocks []wire.Block) (size int) {
	for _, b := range blocks {
		size += len(b.Content)
	}
	return size
}

// changeBlock changes a block of an existing record. edit gets the block's index, or -1 if there is
// no such block.
func (a *API) changeBlock(r *http.Request, at place, id string, pre wire.Precondition, edit func(e *entry, i int) error) (before, after *entry, err error) {
	return a.change(r.Context(), at, func(before *entry) (*entry, error) {
		if before == nil {
			return nil, noRecord(at.id)
		}
		i := before.block(id)
		if !pre.Holds(before.blockTag(i)) {
			return nil, errUnmet
		}
		next := before.copy()
		return next, edit(next, i)
	}, false)
}

func blockUnmet(w http.ResponseWriter, e *entry, id string, whole bool) error {
	i := -1
	if e != nil {
		i = e.block(id)
	}
	if i < 0 {
		return unmetProblem()
	}
	blockValidators(w, e, i)
	if !whole {
		return unmetProblem()
	}
	sendBlock(w, http.StatusPreconditionFailed, e.Blocks[i])
	return nil
}

func (a *API) deleteBlock(w http.ResponseWriter, r *http.Request) error {
	at, id, err := a.blockPlace(r)
	if err != nil {
		return err
	}
	previous, err := getPrevious(r)
	if err != nil {
		return err
	}
	before, _, err := a.changeBlock(r, at, id, wire.ReadPrecondition(r.Header), func(e *entry, i int) error {
		if i < 0 {
			return noBlock(at, id)
		}
		e.Blocks = slices.Delete(e.Blocks, i, i+1)
		e.header.Blocks = slices.Delete(e.header.Blocks, i, i+1)
		return nil
	})
	if errors.Is(err, errUnmet) {
		return blockUnmet(w, before, id, previous)
	}
	if err != nil {
		return err
	}
	i := before.block(id)
	blockValidators(w, before, i)
	if previous {
		sendBlock(w, http.StatusOK, before.Blocks[i])
		return nil
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
