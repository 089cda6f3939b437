package admission_test

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-project/berth/internal/embedded/embeddedtest"
)

// FuzzReview sends any body to any webhook: each is answered, within bounds, and a review gets a review.
func FuzzReview(f *testing.F) {
	c, namespace := serve(f)
	var urls []string
	var mutating admissionregistrationv1.MutatingWebhookConfigurationList
	var validating admissionregistrationv1.ValidatingWebhookConfigurationList
	for _, list := range []client.ObjectList{&mutating, &validating} {
		if err := c.List(f.Context(), list); err != nil {
			f.Fatal(err)
		}
	}
	for i := range mutating.Items {
		for _, w := range mutating.Items[i].Webhooks {
			urls = append(urls, *w.ClientConfig.URL)
		}
	}
	for i := range validating.Items {
		for _, w := range validating.Items[i].Webhooks {
			urls = append(urls, *w.ClientConfig.URL)
		}
	}
	review := func(object, old string) []byte {
		return fmt.Appendf(nil, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","kind":{"group":"batch","version":"v1","kind":"Job"},`+
			`"operation":"CREATE","namespace":%q,"name":"x","userInfo":{"username":"a"},"object":%s,"oldObject":%s}}`, namespace, object, old)
	}
	for i, d := range testOptions().Descriptors {
		object := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":"x","namespace":%q,"labels":{"kueue.x-k8s.io/queue-name":"main"}},"spec":{}}`,
			d.GVK.GroupVersion(), d.GVK.Kind, namespace)
		text := bytes.Replace(review(object, "null"), []byte(`"group":"batch","version":"v1","kind":"Job"`),
			fmt.Appendf(nil, `"group":%q,"version":%q,"kind":%q`, d.GVK.Group, d.GVK.Version, d.GVK.Kind), 1)
		f.Add(uint8(i), text)
		f.Add(uint8(i+len(urls)/2), bytes.Replace(text, []byte("CREATE"), []byte("UPDATE"), 1))
	}
	f.Add(uint8(0), review("{}", "{}"))
	f.Add(uint8(0), []byte("{"))
	web := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	f.Fuzz(func(t *testing.T, which uint8, body []byte) {
		url := urls[int(which)%len(urls)]
		embeddedtest.Bounded(t, len(body), func() {
			response, err := web.Post(url, "application/json", bytes.NewReader(body))
			if err != nil {
				t.Fatalf("%s: %v", url, err) // a handler that panicked, or the server
			}
			defer response.Body.Close()
			text, err := io.ReadAll(response.Body)
			if err != nil {
				t.Fatal(err)
			}
			var answer admissionv1.AdmissionReview
			if err := json.Unmarshal(text, &answer); err != nil || answer.Response == nil {
				t.Fatalf("%s answered %d: %s", url, response.StatusCode, text)
			}
			if answer.Response.Result != nil && strings.Contains(answer.Response.Result.Message, "panic") {
				t.Errorf("%s: %s", url, answer.Response.Result.Message)
			}
		})
	})
}
