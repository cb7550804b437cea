package main

import (
	"io"

	"vitrine/document"
)

// printJSON prints a value as JSON that people read.
func printJSON(w io.Writer, v any) error {
	text, err := document.Indent(v)
	if err == nil {
		_, err = w.Write(text)
	}
	return err
}
