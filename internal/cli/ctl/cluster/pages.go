package cluster

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// PageSize is the number of objects in one request. spec: 70 §4.9.
func PageSize() (int64, error) {
	const name, standard = "KUEUECTL_LIST_REQUEST_LIMIT", 100
	text := os.Getenv(name)
	if text == "" {
		return standard, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return 0, Usage("%s=%s: must be a positive number, the objects in one answer of the API server", name, text)
	}
	return n, nil
}

// Pages reads a whole list, page by page; o.Limit is the size of a page, 0 for that of PageSize.
func (s *Session) Pages(ctx context.Context, list client.ObjectList, o *client.ListOptions) error {
	size, err := PageSize()
	if err != nil {
		return err
	}
	var items []runtime.Object
	told := time.Now().Add(slow)
	for o.Limit = cmp.Or(o.Limit, size); ; {
		page, _ := list.DeepCopyObject().(client.ObjectList)
		err := s.List(ctx, page, o)
		if apierrors.IsResourceExpired(err) && o.Continue != "" {
			items, o.Continue, o.Limit = nil, "", 0 // the list expired: once more, in one piece
			continue
		}
		if err != nil {
			return err
		}
		some, err := apimeta.ExtractList(page)
		if err != nil {
			return err
		}
		items = append(items, some...)
		if o.Continue = page.GetContinue(); o.Continue == "" {
			list.SetResourceVersion(page.GetResourceVersion())
			return apimeta.SetList(list, items)
		}
		if now := time.Now(); now.After(told) {
			told = now.Add(pause)
			fmt.Fprintf(s.Errs, "still reading: %d so far\n", len(items))
		}
	}
}

// Since returns the time since then in kubectl's short form.
func (s *Session) Since(then metav1.Time) string {
	if then.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(s.Now().Sub(then.Time).Truncate(time.Second))
}
