package main

import (
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"vitrine"
	"vitrine/affinity/capture"
	"vitrine/affinity/flow"
)

// withStdin returns the sources with the path of standard input in place of "-".
func withStdin(given []string) []string {
	paths := slices.Clone(given)
	for i, name := range paths {
		if name == "-" {
			paths[i] = "/dev/stdin"
		}
	}
	return paths
}

// readSources reads the arguments that are call flows, and returns the names of the captures. It
// reports all errors together.
func readSources(given []string) (flows []*flow.Transaction, captures []string, err error) {
	var errs []error
	seen := map[string]bool{}
	for _, name := range given {
		found, capture, err := readSource(name)
		if capture && seen[name] {
			err = &vitrine.BadInput{File: name, Found: "named twice", Want: "name each capture once"}
		}
		if capture {
			captures = append(captures, name)
			seen[name] = true
		}
		errs = append(errs, err)
		flows = append(flows, found...)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, nil, err
	}
	for _, t := range flows {
		if seen[t.Source] {
			return nil, nil, &vitrine.BadInput{File: t.Source, Found: "named twice", Want: "name each flow once; count in a flow is how often the flow happens"}
		}
		seen[t.Source] = true
	}
	return flows, captures, nil
}

// readSource reads one argument: a call-flow file, or the built-in flows with the name. It does
// not read captures. A pipe counts as a capture.
func readSource(name string) (flows []*flow.Transaction, isCapture bool, err error) {
	info, err := os.Stat(name)
	switch {
	case err != nil:
		flows, err = flow.Find(name)
		return flows, false, err
	case info.IsDir():
		if flows, err = flow.Find(name); err != nil {
			err = &vitrine.BadInput{File: name, Found: "a folder", Want: "name the captures or call-flow files in it; built-in flows: " + strings.Join(flow.Groups(), ", ")}
		}
		return flows, false, err
	case info.Mode()&os.ModeNamedPipe != 0: // reading the head would consume the pipe's data
		return nil, true, nil
	case !info.Mode().IsRegular():
		return nil, false, &vitrine.BadInput{File: name, Found: "no regular file", Want: "name a capture or a call-flow file"}
	}
	head, err := readHead(name)
	switch {
	case err != nil:
		return nil, false, &vitrine.BadInput{File: name, Found: err.Error(), Want: "name a capture or a call-flow file that can be read"}
	case len(head) == 0:
		return nil, false, &vitrine.BadInput{File: name, Found: "the file is empty", Want: "name a capture or a call-flow file"}
	case capture.Looks(head): // call flows are text
		return nil, true, nil
	case !isText(head):
		return nil, false, &vitrine.BadInput{File: name, Found: "neither a capture nor UTF-8 text", Want: "name a pcap or pcapng file, also compressed by gzip or zstd, or a call-flow file: editcap of Wireshark converts other captures"}
	}
	t, err := flow.Read(name)
	if err != nil {
		return nil, false, err
	}
	return []*flow.Transaction{t}, false, nil
}

// readHead returns the first octets of a file.
func readHead(path string) ([]byte, error) {
	const enough = 512 // octets that are enough to recognise text
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close() // opened read-only
	return io.ReadAll(io.LimitReader(file, enough))
}

// isText reports whether the first octets of a file may be UTF-8 text. They may end within
// a character.
func isText(head []byte) bool {
	for len(head) > 0 {
		r, n := utf8.DecodeRune(head)
		if r == utf8.RuneError && n == 1 && utf8.FullRune(head) || r < ' ' && !unicode.IsSpace(r) {
			return false
		}
		head = head[n:]
	}
	return true
}
