// Package restartagent runs inside the pods of a JobSet that restarts in place (spec: 60 §4.6.4). It holds the worker back
// until all pods of the JobSet have reached the same attempt, and ends its container, and with it the worker, when another pod
// has begun the next one. The plan decides:
//
//	JobSet (a watch on one object) ─► plan.Agent        ─┬─► attempt: annotation of the pod
//	                                                     ├─► lift: start the worker, or let the startup probe succeed
//	worker ends, signals ────────────────────────────────┴─► exit
package restartagent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	plan "github.com/berth-project/berth/internal/jobset/plan"
)

// fieldOwner is the name under which agents write, as upstream's do.
const fieldOwner = client.FieldOwner("in-place-restart-agent")

// Config is the configuration in the environment of the container.
type Config struct {
	Namespace, JobSet, Pod string
	// Worker is the command to run with Shell once the barrier is lifted. If it is empty, the worker is another container,
	// which a startup probe of ProbePath on ProbePort delays.
	Worker, Shell string
	ProbePath     string
	ProbePort     int
	// RestartCode is the exit code with which the container is restarted.
	RestartCode int
}

// Defaults of the environment.
const (
	defaultProbePath   = "/barrier-is-down"
	defaultProbePort   = 8081
	defaultRestartCode = 1
)

// FromEnv parses the environment of a container in a namespace.
func FromEnv(namespace string, env func(string) (string, bool)) (Config, error) {
	get := func(name string) string { value, _ := env(name); return value }
	c := Config{
		Namespace: namespace, JobSet: get("JOBSET_NAME"), Pod: get("POD_NAME"), Worker: get("WORKER_COMMAND"), Shell: get("SHELL"),
		ProbePath: get("STARTUP_PROBE_PATH"), ProbePort: defaultProbePort, RestartCode: defaultRestartCode,
	}
	var errs []error
	for _, name := range []string{"JOBSET_NAME", "POD_NAME"} {
		if get(name) == "" {
			errs = append(errs, fmt.Errorf("%s is not set", name))
		}
	}
	number := func(name string, to *int, least, most int) {
		text, ok := env(name)
		if !ok {
			return
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < least || n > most {
			errs = append(errs, fmt.Errorf("%s is %q, want a number from %d to %d", name, text, least, most))
		}
		*to = n
	}
	number("STARTUP_PROBE_PORT", &c.ProbePort, 1, 65535)
	number("IN_PLACE_RESTART_EXIT_CODE", &c.RestartCode, 0, 255)
	for _, name := range []string{"STARTUP_PROBE_PATH", "STARTUP_PROBE_PORT"} {
		if _, ok := env(name); ok && c.Worker != "" {
			errs = append(errs, fmt.Errorf("%s and WORKER_COMMAND are both set: either the agent runs the worker, or a probe holds it up", name))
		}
	}
	if c.Shell == "" {
		c.Shell = "bash"
	}
	if c.ProbePath == "" {
		c.ProbePath = defaultProbePath
	}
	if !strings.HasPrefix(c.ProbePath, "/") {
		c.ProbePath = "/" + c.ProbePath
	}
	return c, errors.Join(errs...)
}

// Exit is the error that ends the agent with an exit code.
type Exit struct {
	Code int
	Why  string
}

// Error returns the reason.
func (e *Exit) Error() string { return e.Why }

// ExitCode returns the exit code of the container.
func (e *Exit) ExitCode() int { return e.Code }

// Pauses between attempts to reach the API server.
const (
	retry      = 500 * time.Millisecond
	writeLimit = 10 * time.Second
)

type agent struct {
	Config
	client client.Client
	plan   plan.Agent
	say    func(format string, args ...any)

	worker *worker
	lifted chan struct{} // closed with the barrier
}

// Run runs an agent until its container has to end, which is an *Exit, or nil if the worker succeeded. It reports
// its progress to say. A signal ends the worker too.
func Run(ctx context.Context, to *rest.Config, c Config, signals <-chan os.Signal, say func(format string, args ...any)) error {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), jobsetv1alpha2.AddToScheme(scheme)); err != nil {
		return err
	}
	writer, err := client.New(to, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("connecting to the API server: %w", err)
	}
	a := &agent{Config: c, client: writer, say: say, lifted: make(chan struct{})}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	seen, failed, err := a.watch(ctx, to, scheme)
	if err != nil {
		return err
	}
	if c.Worker == "" {
		free, err := a.serve(ctx, failed)
		if err != nil {
			return err
		}
		defer free()
	}
	defer func() { a.worker.kill() }()
	return a.run(ctx, seen, signals, failed)
}

// run acts upon each state of the JobSet until the container has to end.
func (a *agent) run(ctx context.Context, seen <-chan *jobsetv1alpha2.JobSet, signals <-chan os.Signal, failed <-chan error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var advice plan.Advice
	var written chan error // nil unless the attempt of the advice is being written
	for {
		next := seen
		if written != nil {
			next = nil
		}
		select {
		case js := <-next:
			advice = a.plan.See(js)
			if attempt := advice.Attempt; attempt != nil {
				written = make(chan error, 1)
				go func() { written <- a.write(ctx, *attempt) }()
				continue
			}
			if err := a.follow(advice); err != nil {
				return err
			}
		case err := <-written:
			if err != nil {
				return err
			}
			written = nil
			if err := a.follow(advice); err != nil {
				return err
			}
		case code := <-a.worker.ended():
			if code == 0 {
				return nil
			}
			return &Exit{code, fmt.Sprintf("the worker ended with %d", code)}
		case s := <-signals:
			return a.interrupted(s)
		case err := <-failed:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// watch follows the JobSet. The channel holds its newest state only.
func (a *agent) watch(ctx context.Context, to *rest.Config, scheme *runtime.Scheme) (<-chan *jobsetv1alpha2.JobSet, chan error, error) {
	source, err := cache.New(to, cache.Options{Scheme: scheme, ByObject: map[client.Object]cache.ByObject{
		&jobsetv1alpha2.JobSet{}: {
			Namespaces: map[string]cache.Config{a.Namespace: {}}, Field: fields.OneTermEqualSelector("metadata.name", a.JobSet),
		},
	}})
	if err != nil {
		return nil, nil, fmt.Errorf("watching JobSet %s/%s: %w", a.Namespace, a.JobSet, err)
	}
	informer, err := source.GetInformer(ctx, &jobsetv1alpha2.JobSet{})
	if err != nil {
		return nil, nil, fmt.Errorf("watching JobSet %s/%s: %w", a.Namespace, a.JobSet, err)
	}
	seen := make(chan *jobsetv1alpha2.JobSet, 1)
	put := func(object any) {
		js, ok := object.(*jobsetv1alpha2.JobSet)
		if !ok {
			return
		}
		select {
		case <-seen: // drop the unread state
		default:
		}
		seen <- js // only this handler sends
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: put, UpdateFunc: func(_, now any) { put(now) }})
	if err != nil {
		return nil, nil, fmt.Errorf("watching JobSet %s/%s: %w", a.Namespace, a.JobSet, err)
	}
	failed := make(chan error, 2)
	go func() {
		if err := source.Start(ctx); err != nil {
			failed <- fmt.Errorf("watching JobSet %s/%s: %w", a.Namespace, a.JobSet, err)
		}
	}()
	return seen, failed, nil
}

// follow executes the plan's advice, once its attempt is written.
func (a *agent) follow(advice plan.Advice) error {
	if advice.Exit {
		return &Exit{a.RestartCode, "another pod has begun the next attempt: this one starts again"}
	}
	if !advice.Lift {
		return nil
	}
	a.say("the barrier is lifted")
	close(a.lifted)
	if a.Worker == "" {
		return nil
	}
	var err error
	a.worker, err = start(a.Shell, a.Worker)
	return err
}

// write writes the attempt into the annotation of the pod, and retries until ctx ends.
func (a *agent) write(ctx context.Context, attempt int32) error {
	data, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"annotations": map[string]string{jobsetv1alpha2.InPlaceRestartAttemptAnnotation: strconv.Itoa(int(attempt))}},
	})
	if err != nil {
		return err
	}
	for {
		pod := &corev1.Pod{}
		pod.Namespace, pod.Name = a.Namespace, a.Pod
		limited, done := context.WithTimeout(ctx, writeLimit)
		err := a.client.Patch(limited, pod, client.RawPatch(types.ApplyPatchType, data), fieldOwner, client.ForceOwnership)
		done()
		if err == nil {
			a.say("this pod is in attempt %d", attempt)
			return nil
		}
		a.say("the attempt cannot be written, trying again: %v", err)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(retry):
		}
	}
}

// serve answers the startup probe of the worker's container, with success once the barrier is lifted. The returned function frees the port.
func (a *agent) serve(ctx context.Context, failed chan<- error) (free func(), err error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", ":"+strconv.Itoa(a.ProbePort))
	if err != nil {
		return nil, fmt.Errorf("startup probe: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc(a.ProbePath, func(w http.ResponseWriter, _ *http.Request) {
		select {
		case <-a.lifted:
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: writeLimit}
	go func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			failed <- fmt.Errorf("startup probe: %w", err)
		}
	}()
	return func() { _ = errors.Join(server.Close(), l.Close()) }, nil // the server may not have taken the listener yet
}

// interrupted sends a signal to the worker, waits for its end, and exits like a shell.
func (a *agent) interrupted(s os.Signal) error {
	n := 0
	if number, ok := s.(syscall.Signal); ok {
		n = int(number)
	}
	if a.worker != nil {
		a.worker.signal(s)
		<-a.worker.ended()
	}
	return &Exit{128 + n, fmt.Sprintf("told to stop: %s", s)}
}
