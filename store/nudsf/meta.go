package nudsf

import (
	"errors"
	"net/http"

	"vitrine/store/nudsf/rest"
	"vitrine/store/nudsf/wire"
)

func (a *API) getMeta(w http.ResponseWriter, r *http.Request) error {
	at, err := a.place(r)
	if err != nil {
		return err
	}
	e, err := a.live(r.Context(), at)
	if err != nil || conditional(w, r, e.etag(), e.modified()) {
		return err
	}
	return rest.JSON(w, http.StatusOK, e.Meta)
}

// maxMeta bounds a record's meta, and a patch of it, in bytes.
const maxMeta = 128 << 10

func (a *API) patchMeta(w http.ResponseWriter, r *http.Request) error {
	at, err := a.place(r)
	if err != nil {
		return err
	}
	items, err := rest.Patch(w, r, maxMeta, a.Limits)
	if err != nil {
		return err
	}
	pre := wire.ReadPrecondition(r.Header)
	var report []wire.ReportItem
	before, after, err := a.change(r.Context(), at, func(before *entry) (*entry, error) {
		if before == nil {
			return nil, noRecord(at.id)
		}
		if !pre.Holds(before.etag()) {
			return nil, errUnmet
		}
		meta, left, err := wire.ApplyPatch(before.Meta, items, maxMeta, func(m wire.Meta) error {
			if err := m.Tags.Check("/tags", a.Limits); err != nil {
				return err
			}
			return a.checkMeta(m)
		})
		if err != nil {
			return nil, err
		}
		report = left
		next := before.copy()
		next.Meta = meta
		return next, nil
	}, false)
	if errors.Is(err, errUnmet) {
		return recordUnmet(w, before, false)
	}
	if err != nil {
		return err
	}
	wire.Validators(w.Header(), after.etag(), after.modified())
	return rest.Patched(w, report)
}

// copy returns a copy whose meta and list of blocks may be changed.
func (e *entry) copy() *entry {
	next := *e
	next.Blocks = append([]wire.Block(nil), e.Blocks...)
	next.header.Blocks = append([]blockHeader(nil), e.header.Blocks...)
	return &next
}
