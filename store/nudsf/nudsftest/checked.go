package nudsftest

import (
	"bytes"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"vitrine/store/nudsf"
	"vitrine/store/nudsf/timer"
)

// unchecked in a request's context marks a request that is wrong on purpose.
type unchecked struct{}

// checked is a transport that validates requests and answers against the OpenAPI documents.
type checked struct {
	t       *testing.T
	next    http.RoundTripper
	routers []routers.Router
}

func newChecked(t *testing.T, base string, next http.RoundTripper) *checked {
	t.Helper()
	registerDecoders()
	c := &checked{t: t, next: next}
	for root, text := range map[string][]byte{nudsf.Root: nudsf.OpenAPI, timer.Root: timer.OpenAPI} {
		doc, err := openapi3.NewLoader().LoadFromData(text)
		if err == nil {
			err = doc.Validate(t.Context())
		}
		if err != nil {
			t.Fatalf("OpenAPI document of %s: %v", root, err)
		}
		doc.Servers = openapi3.Servers{{URL: base + root}}
		router, err := gorillamux.NewRouter(doc)
		if err != nil {
			t.Fatal(err)
		}
		c.routers = append(c.routers, router)
	}
	return c
}

// registerDecoders registers decoders for multipart bodies. The library has one map for the whole
// process.
var registerDecoders = sync.OnceFunc(func() {
	for _, media := range []string{"multipart/mixed", "multipart/parallel"} {
		openapi3filter.RegisterBodyDecoder(media, decodeParts)
	}
	openapi3filter.RegisterBodyDecoder("application/json-patch+json", openapi3filter.JSONBodyDecoder)
})

// decodeParts returns a multipart body in the form of the schemas: meta and descriptor by name,
// other parts as blocks.
func decodeParts(body io.Reader, header http.Header, _ *openapi3.SchemaRef, _ openapi3filter.EncodingFn) (any, error) {
	_, params, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil {
		return nil, err
	}
	reader := multipart.NewReader(body, params["boundary"])
	whole := map[string]any{}
	var blocks []any
	for {
		part, err := reader.NextRawPart()
		if err == io.EOF { //nolint:errorlint // documented as such
			break
		}
		if err != nil {
			return nil, err
		}
		id := part.Header.Get("Content-Id")
		if id != "meta" && id != "descriptor" {
			data, err := io.ReadAll(part)
			if err != nil {
				return nil, err
			}
			if part.Header.Get("Content-Transfer-Encoding") == "" || id == "" {
				return nil, fmt.Errorf("block %q lacks Content-Id or Content-Transfer-Encoding", id)
			}
			blocks = append(blocks, string(data))
			continue
		}
		value, err := openapi3filter.JSONBodyDecoder(part, nil, nil, nil)
		if err != nil {
			return nil, err
		}
		whole[id] = value
	}
	if blocks != nil {
		whole["blocks"] = blocks
	}
	return whole, nil
}

func (c *checked) RoundTrip(request *http.Request) (*http.Response, error) {
	var body []byte
	if request.Body != nil {
		var err error
		if body, err = io.ReadAll(request.Body); err != nil {
			return nil, err
		}
		request.Body = io.NopCloser(bytes.NewReader(body))
	}
	input := c.route(request)
	right := request.Context().Value(unchecked{}) == nil
	if right {
		if input == nil {
			return nil, fmt.Errorf("no OpenAPI document has %s %s", request.Method, request.URL)
		}
		if err := openapi3filter.ValidateRequest(request.Context(), input); err != nil {
			return nil, fmt.Errorf("request violates the OpenAPI document: %w", err)
		}
		request.Body = io.NopCloser(bytes.NewReader(body))
	}
	response, err := c.next.RoundTrip(request)
	if err != nil || input == nil {
		return response, err
	}
	answer, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil {
		return nil, err
	}
	response.Body = io.NopCloser(bytes.NewReader(answer))
	check := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: response.StatusCode, Header: response.Header,
		Options: &openapi3filter.Options{IncludeResponseStatus: true},
	}
	check.SetBodyBytes(answer)
	if err := openapi3filter.ValidateResponse(request.Context(), check); err != nil {
		return nil, fmt.Errorf("answer %d to %s %s violates the OpenAPI document: %w\n%s", response.StatusCode, request.Method, request.URL, err, answer)
	}
	return response, nil
}

// route finds the operation of a request; nil if there is none.
func (c *checked) route(request *http.Request) *openapi3filter.RequestValidationInput {
	for _, router := range c.routers {
		route, path, err := router.FindRoute(request)
		if err == nil {
			return &openapi3filter.RequestValidationInput{
				Request: request, PathParams: path, Route: route,
				Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc},
			}
		}
	}
	return nil
}
