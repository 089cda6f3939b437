package preflight

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/install/upstream"
	"github.com/berth-project/berth/internal/options/feature"
)

// Step is one step of a takeover, or of the way back.
type Step struct {
	Text string `json:"text"`
	// Commands are for a shell, in their order. Words in capitals are to be replaced.
	Commands []string `json:"commands,omitempty"`
	// Back is true of the way back, which is for later.
	Back bool `json:"back,omitempty"`
}

// inputs are the facts from which the plan is made, beside the findings.
type inputs struct {
	deployments []upstream.Deployment
	held        []upstream.Lease
	hooks       []upstream.Configuration // that an installation does not replace
	files       []file
	// gates are the feature gates on the command lines of all controllers.
	gates []string
	// refused is true if Berth would not run with the files and gates.
	refused bool
	// namespace is that of Berth, if a configuration file was read; lease is then the Lease of its leader.
	namespace string
	lease     types.NamespacedName
}

// file is a configuration file of another controller that Berth reads as well.
type file struct{ namespace, configMap, key, text string }

// object returns the ConfigMap of the file.
func (f *file) object() string { return "ConfigMap/" + f.namespace + "/" + f.configMap }

// plainGate is a feature gate that a shell reads as it is.
var plainGate = regexp.MustCompile(`^\w+=\w+$`)

// fileName is the name under which a plan saves a file.
func fileName(i int) string {
	if i == 0 {
		return "berth.yaml"
	}
	return fmt.Sprintf("berth-%d.yaml", i+1)
}

// save returns the command that writes the file to disk.
func (f *file) save(to string) string {
	return fmt.Sprintf("kubectl get -n %s configmap %s -o jsonpath='{.data.%s}' > %s", f.namespace, f.configMap, strings.ReplaceAll(f.key, ".", `\.`), to)
}

// plan returns the steps of the takeover of this cluster, and of the way back.
func (l *looker) plan() []Step {
	namespace := l.ownNamespace()
	others := slices.DeleteFunc(slices.Clone(l.deployments), func(d upstream.Deployment) bool { return d.Berth })
	steps := l.before()
	var names []string
	if len(l.files) > 0 {
		save := Step{Text: "Save the configuration."}
		for i := range l.files {
			save.Commands = append(save.Commands, l.files[i].save(fileName(i)))
			names = append(names, " --config "+fileName(i))
		}
		steps = append(steps, save)
	}
	config := strings.Join(names, "")
	gates := slices.DeleteFunc(slices.Sorted(slices.Values(l.gates)), func(gate string) bool { return !plainGate.MatchString(gate) })
	if len(gates) > 0 {
		config += " " + feature.Flag + "=" + strings.Join(slices.Compact(gates), ",")
	}
	stop := Step{Text: "Stop the other controllers. Running jobs run on; new jobs are refused until Berth answers."}
	for i := range others {
		if d := &others[i]; d.Wants() {
			stop.Commands = append(stop.Commands, d.Stop(),
				fmt.Sprintf("kubectl wait -n %s --for=delete pod -l %s --timeout=2m", d.Namespace, metav1.FormatLabelSelector(d.Spec.Selector)))
		}
	}
	for i := range l.held {
		if lease := &l.held[i]; !slices.ContainsFunc(others, func(d upstream.Deployment) bool { return d.Namespace == lease.Namespace }) {
			stop.Commands = append(stop.Commands, fmt.Sprintf("# stop %s, which holds the Lease %s in the namespace %s", lease.Holder(), lease.Name, lease.Namespace))
		}
	}
	if len(stop.Commands) > 0 {
		steps = append(steps, stop)
	}
	if len(l.hooks) > 0 {
		remove := Step{Text: "Delete their webhooks, which would refuse writes from now on. Webhooks with the names of Berth's own are replaced in the next step."}
		for i := range l.hooks {
			remove.Commands = append(remove.Commands, l.hooks[i].Delete())
		}
		steps = append(steps, remove)
	}
	return slices.Concat(steps, []Step{
		{
			Text: "Install Berth and wait for it. It refuses to start while another controller still runs. Outside of the cluster: " +
				"berth manager --install" + config + " --webhook-url https://HOST:9443",
			Commands: []string{
				"berth install" + config + " --image REGISTRY/berth:TAG",
				fmt.Sprintf("kubectl rollout status -n %s deployment/kueue-controller-manager", namespace),
			},
		},
		{
			Text:     "Check: nothing is in the way any more, and the queues use as much as before.",
			Commands: []string{"berth preflight", "berth top"},
		},
	}, l.back(others, namespace))
}

// before is the step that removes everything in the way for which no other step is.
func (l *looker) before() []Step {
	var commands []string
	for i := range l.Findings {
		f := &l.Findings[i]
		kind, _, _ := strings.Cut(f.Object, "/")
		later := kind == "Deployment" || kind == "Lease" || strings.HasSuffix(kind, "WebhookConfiguration")
		if f.Severity == Blocks && (!later || f.Field == feature.Flag) {
			commands = append(commands, fmt.Sprintf("# %s: %s", f.Object, f.Do))
		}
	}
	if len(commands) == 0 {
		return nil
	}
	return []Step{{Text: "Remove the obstacles that the next steps do not remove.", Commands: commands}}
}

// back is the way back to the other controllers.
func (l *looker) back(others []upstream.Deployment, namespace string) []Step {
	if len(others) == 0 {
		return nil
	}
	var release []Step
	if slices.ContainsFunc(others, func(d upstream.Deployment) bool { return d.Namespace == l.lease.Namespace }) {
		release = []Step{{
			Text:     "Delete the Lease of Berth's leader in their namespace: Berth's label stays on it, and a later Berth would take its holder for one of its own.",
			Commands: []string{fmt.Sprintf("kubectl delete lease -n %s %s --ignore-not-found", l.lease.Namespace, l.lease.Name)},
			Back:     true,
		}}
	}
	start := Step{Text: "Start the other controllers.", Back: true}
	for i := range others {
		start.Commands = append(start.Commands, others[i].Start())
	}
	stop := Step{
		Text:     "Stop Berth.",
		Commands: []string{fmt.Sprintf("kubectl scale -n %s deployment/kueue-controller-manager --replicas=0", namespace)},
		Back:     true,
	}
	apply := []Step{
		{
			Text:     "Delete the policies that only Berth has.",
			Commands: []string{"kubectl delete validatingadmissionpolicybinding,validatingadmissionpolicy berth-queue-label kueue-manager-writes"},
			Back:     true,
		},
		{
			Text: "Apply the manifests of the other controllers' releases again, or upgrade their releases of Helm: their CRDs, webhooks and APIServices then lead to them. The release of Kueue " +
				"has to serve v1beta2, in which Berth stores.",
			Commands: []string{"kubectl apply --server-side --force-conflicts -f MANIFESTS"},
			Back:     true,
		},
	}
	if slices.ContainsFunc(others, func(d upstream.Deployment) bool { return d.Group == kueue.GroupVersion.Group }) {
		apply = append(apply, unconverted)
	}
	return slices.Concat([]Step{stop}, release, apply, []Step{start}) // the manifests of the other controllers may start them
}

// unconverted is the step that takes Berth's conversion from the one CRD whose manifest has none for the other system: an apply does not
// remove a field that its manifest lacks. spec: 40 §2.2.
var unconverted = Step{
	Text: "Have the API server convert MultiKueueConfigs itself again. Kueue's CRD has no conversion webhook for them, so applying it leaves Berth's.",
	Commands: []string{
		`kubectl patch crd multikueueconfigs.kueue.x-k8s.io --type=json -p '[{"op":"replace","path":"/spec/conversion","value":{"strategy":"None"}}]'`,
	},
	Back: true,
}

// writePlan writes the numbered steps.
func writePlan(to io.Writer, steps []Step) {
	for i := range steps {
		s := &steps[i]
		switch {
		case i == 0:
			fmt.Fprint(to, "\nThe takeover, step by step:\n")
		case s.Back && !steps[i-1].Back:
			fmt.Fprint(to, "\nThe way back, if you want it later:\n")
		}
		fmt.Fprintf(to, "\n%2d. %s\n", i+1, s.Text)
		for _, command := range s.Commands {
			fmt.Fprintf(to, "      %s\n", command)
		}
	}
}
