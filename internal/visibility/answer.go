package visibility

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// Formats of answers.
const (
	formatJSON = "application/json"
	formatYAML = "application/yaml"
)

// accepted returns a format that the caller accepts, or "". Clauses that ask for a transformation, such as a table, are skipped: clients
// that send them also name the plain format.
func accepted(header string) string {
	if strings.TrimSpace(header) == "" {
		return formatJSON
	}
	for clause := range strings.SplitSeq(header, ",") {
		kind, params, err := mime.ParseMediaType(clause)
		if err != nil || params["as"] != "" || params["q"] == "0" {
			continue
		}
		switch kind {
		case formatJSON, "application/*", "*/*":
			return formatJSON
		case formatYAML:
			return formatYAML
		}
	}
	return ""
}

// write answers with an object in the format that the caller accepts.
func (s *Server) write(w http.ResponseWriter, r *http.Request, code int, object runtime.Object) {
	format := accepted(r.Header.Get("Accept"))
	if format == "" {
		refused := apierrors.NewGenericServerResponse(http.StatusNotAcceptable, "", schemaless, "", "only application/json and application/yaml are served", 0, true)
		code, format, object = http.StatusNotAcceptable, formatJSON, status(refused)
	}
	body, err := json.Marshal(object)
	switch {
	case err != nil:
	case format == formatYAML:
		body, err = yaml.JSONToYAML(body)
	case pretty(r):
		var wide bytes.Buffer
		err = json.Indent(&wide, body, "", "  ")
		body = wide.Bytes()
	}
	if err != nil {
		s.Log.Error(err, "An answer could not be encoded", "path", r.URL.Path)
		http.Error(w, "the answer could not be encoded", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", format)
	w.Header().Set("Cache-Control", "no-cache, private")
	w.WriteHeader(code)
	_, _ = w.Write(body) // the caller may have left
}

func pretty(r *http.Request) bool {
	on, err := strconv.ParseBool(r.URL.Query().Get("pretty"))
	return err == nil && on
}

// refuse answers with an error as API servers do: a Status.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	refused := status(err)
	if d := refused.Details; d != nil && d.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(d.RetryAfterSeconds)))
	}
	s.write(w, r, int(refused.Code), refused)
}

func status(err error) *metav1.Status {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		known = apierrors.NewInternalError(err)
	}
	out := known.Status()
	out.Kind, out.APIVersion = "Status", "v1"
	return &out
}

// static is a document that does not change while the server runs.
type static struct {
	body   []byte
	format string
	etag   string
}

func newStatic(document any, format string) *static {
	body, err := json.Marshal(document)
	if err != nil {
		panic("documents are plain values and always marshal: " + err.Error())
	}
	return &static{body, format, `"` + hash(body) + `"`}
}

// hash tells versions of a document apart.
func hash(body []byte) string {
	sum := sha256.Sum256(body)
	return strings.ToUpper(hex.EncodeToString(sum[:]))
}

// serve answers with the document, or that the caller has it already.
func (d *static) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Etag", d.etag)
	w.Header().Set("Vary", "Accept")
	w.Header().Set("Cache-Control", "public")
	if r.Header.Get("If-None-Match") == d.etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	w.Header().Set("Content-Type", d.format)
	_, _ = w.Write(d.body)
}
