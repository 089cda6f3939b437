package sim

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/state"
)

// args are the words after a command. Methods remove the words that they return; done
// reports whether all were understood. The first mistake stays in err; later results of the
// methods are meaningless.
type args struct {
	command, usage string
	words          []string
	known          []string // the names that methods asked for: "flag", "key=", "prefix." or "" for any key
	err            error
}

func (a *args) fail(format string, values ...any) {
	if a.err == nil {
		a.err = fmt.Errorf(a.command+": "+format, values...)
	}
}

// done reports whether all words were understood. Nothing may be changed before that.
func (a *args) done() bool {
	if a.err != nil || len(a.words) == 0 {
		return a.err == nil
	}
	w := a.words[0]
	key, _, pair := strings.Cut(w, "=")
	knownFlag, knownKey := slices.Contains(a.known, key), slices.Contains(a.known, key+"=")
	switch {
	case pair && knownKey, !pair && knownFlag:
		a.fail("%s is there twice", quote(key))
	case knownKey:
		a.fail("%s needs a value; usage: %s", quote(key+"="), a.usage)
	case knownFlag:
		a.fail("%s takes no value", quote(key))
	default:
		if pair {
			key += "="
		}
		if near := nearest(key, a.known); near != "" {
			a.fail("%s means nothing here; did you mean %q?", quote(w), near)
		}
		a.fail("%s means nothing here; usage: %s", quote(w), a.usage)
	}
	return false
}

// word removes and returns the first word.
func (a *args) word(what string) string {
	if len(a.words) == 0 {
		a.fail("%s is missing; usage: %s", what, a.usage)
		return ""
	}
	w := a.words[0]
	a.words = a.words[1:]
	return w
}

// name removes and returns the first word, which must be a name.
func (a *args) name(what string) string {
	w := a.word(what)
	if a.err == nil {
		a.checkName(w, "")
	}
	return w
}

// checkName fails unless text is made of letters, digits, ".", "_", "-" and others.
func (a *args) checkName(text, others string) {
	bad := strings.IndexFunc(text, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && !strings.ContainsRune("._-"+others, r)
	})
	switch {
	case text == "" || bad >= 0:
		a.fail("%s is no name: write letters, digits, \".\", \"_\" and \"-\"", quote(text))
	case len(text) > maxName:
		a.fail("%s: a name has at most %d bytes, not %d", quote(text), maxName, len(text))
	}
}

// flag removes an optional word and reports whether it was there.
func (a *args) flag(name string) bool {
	a.known = append(a.known, name)
	i := slices.Index(a.words, name)
	if i >= 0 {
		a.words = slices.Delete(slices.Clone(a.words), i, i+1)
	}
	return i >= 0
}

// pairs removes every KEY=VALUE whose key has the prefix, and cuts the prefix off.
func (a *args) pairs(prefix string) (out [][2]string) {
	a.known = append(a.known, prefix)
	a.words = slices.DeleteFunc(slices.Clone(a.words), func(w string) bool {
		key, value, ok := strings.Cut(w, "=")
		key, ours := strings.CutPrefix(key, prefix)
		if !ok || !ours {
			return false
		}
		if key == "" {
			a.fail("%s has no key", quote(w))
		}
		out = append(out, [2]string{key, value})
		return true
	})
	return out
}

// values removes every name=VALUE.
func (a *args) values(name string) (out []string) {
	for {
		text, ok := a.value(name)
		if !ok {
			return out
		}
		out = append(out, text)
	}
}

// labels makes pairs a map, nil for none.
func (a *args) labels(pairs [][2]string) map[string]string {
	if len(pairs) == 0 {
		return nil
	}
	labels := map[string]string{}
	for _, p := range pairs {
		if _, twice := labels[p[0]]; twice {
			a.fail("%s is there twice", quote(p[0]))
		}
		labels[p[0]] = p[1]
	}
	return labels
}

// value removes name=value.
func (a *args) value(name string) (string, bool) {
	if !slices.Contains(a.known, name+"=") {
		a.known = append(a.known, name+"=")
	}
	for i, w := range a.words {
		if key, value, ok := strings.Cut(w, "="); ok && key == name {
			a.words = slices.Delete(slices.Clone(a.words), i, i+1)
			if value == "" {
				a.fail("%s needs a value; usage: %s", quote(w), a.usage)
			}
			return value, true
		}
	}
	return "", false
}

// nameOf removes key=NAME.
func (a *args) nameOf(key, otherwise string) string {
	text, ok := a.value(key)
	if !ok {
		return otherwise
	}
	a.checkName(text, "")
	return text
}

// number removes key=N, a whole number from least to most.
func (a *args) number(key string, otherwise, least, most int64) int64 {
	text, ok := a.value(key)
	if !ok {
		return otherwise
	}
	return a.whole(key, text, least, most)
}

func (a *args) whole(what, text string, least, most int64) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most {
		a.fail("%s: %s is no whole number from %d to %d", what, quote(text), least, most)
	}
	return n
}

// keyValue splits KEY:VALUE. Without ":" the value is empty, which fails if it is needed.
func (a *args) keyValue(what, text string, needed bool) (key, value string) {
	key, value, ok := strings.Cut(text, ":")
	if key == "" || (needed && !ok) {
		a.fail("%s=%s: write %s=KEY:VALUE", what, quote(text), what)
	}
	return key, value
}

// oneOf removes key=WORD, where WORD stands for one of the values.
func oneOf[T any](a *args, key string, otherwise T, values map[string]T) T {
	text, ok := a.value(key)
	if !ok {
		return otherwise
	}
	return meaning(a, key, text, values)
}

// meaning returns the value that a word stands for.
func meaning[T any](a *args, key, text string, values map[string]T) T {
	v, ok := values[text]
	if !ok {
		a.fail("%s=%s: %s", key, quote(text), didYouMean(text, sortedKeys(values)))
	}
	return v
}

// times removes a first word xN and returns N; without one it is 1.
func (a *args) times(most int64) int64 {
	if len(a.words) == 0 {
		return 1
	}
	digits, ok := strings.CutPrefix(a.words[0], "x")
	if !ok || digits == "" || strings.Trim(digits, "0123456789") != "" {
		return 1
	}
	a.words = a.words[1:]
	return a.whole("x", digits, 1, most)
}

// units of amounts, per resource.
var (
	coreUnits = []unit{{"m", 1}}
	sizeUnits = []unit{{"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30}, {"Ti", 1 << 40}, {"Pi", 1 << 50}, {"Ei", 1 << 60}}
)

type unit struct {
	suffix string
	scale  int64
}

// amount reads an amount of a resource.
func (a *args) amount(res, text string) resource.Amount {
	if text == "unlimited" {
		return resource.Unlimited
	}
	digits, scale, units := text, int64(1), sizeUnits
	if res == "cpu" {
		scale, units = 1000, coreUnits
	}
	for _, u := range units {
		if number, ok := strings.CutSuffix(text, u.suffix); ok {
			digits, scale = number, u.scale
		}
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || n > uint64(math.MaxInt64/scale) {
		a.fail("%s is no amount of %s: write a whole number, followed by m if it is thousandths of a cpu, "+
			"or by Ki, Mi, Gi, Ti, Pi or Ei of anything else; or write unlimited", quote(text), quote(res))
	}
	return resource.Amount(n) * resource.Amount(scale)
}

// weight removes weight=W, with up to nine decimals.
func (a *args) weight() *quota.Weight {
	text, ok := a.value("weight")
	if !ok {
		return nil
	}
	whole, decimals, _ := strings.Cut(text, ".")
	billionths, err := strconv.ParseUint(whole+(decimals + "000000000")[:9], 10, 63)
	if err != nil || whole == "" || len(decimals) > 9 {
		a.fail("weight: %s is no number with at most nine decimals", quote(text))
	}
	return new(quota.Weight(billionths))
}

// cell is a quota, or an amount, of one flavor.
type cell struct {
	flavor string
	state.Quota
}

// cells removes every FLAVOR/RESOURCE=AMOUNT, with [,borrow=LIMIT][,lend=LIMIT] if limits are allowed. Remove other words with a "/"
// before.
func (a *args) cells(limits bool) (cells []cell) {
	a.words = slices.DeleteFunc(slices.Clone(a.words), func(w string) bool {
		key, text, ok := strings.Cut(w, "=")
		name, res, ours := strings.Cut(key, "/")
		if !ours || w == "/" {
			return false
		}
		if !ok {
			a.fail("%s has no amount: write FLAVOR/RESOURCE=AMOUNT", quote(w))
		}
		a.checkName(name, "")
		a.checkName(res, "/")
		parts := strings.Split(text, ",")
		c := cell{name, state.Quota{Resource: res, Nominal: a.amount(res, parts[0]), Borrow: quota.NoLimit, Lend: quota.NoLimit}}
		for _, p := range parts[1:] {
			a.limit(&c, p, limits)
		}
		if slices.ContainsFunc(cells, func(o cell) bool { return o.flavor == name && o.Resource == res }) {
			a.fail("%s is there twice", quote(key))
		}
		cells = append(cells, c)
		return true
	})
	return cells
}

// limit reads borrow=LIMIT or lend=LIMIT.
func (a *args) limit(c *cell, text string, allowed bool) {
	which, amount, _ := strings.Cut(text, "=")
	to := map[string]*resource.Amount{"borrow": &c.Borrow, "lend": &c.Lend}[which]
	switch {
	case !allowed:
		a.fail("%s: limits are for quotas only", quote(text))
	case to == nil || *to != quota.NoLimit:
		a.fail("%s: after an amount come at most one borrow=LIMIT and one lend=LIMIT", quote(text))
	default:
		*to = a.amount(c.Resource, amount)
	}
}

// groups removes quotas. Flavors with the same resources are a group, in the order of their first quota.
func (a *args) groups() (groups []state.Group) {
	var flavors []state.FlavorQuota
	for _, c := range a.cells(true) {
		i := slices.IndexFunc(flavors, func(f state.FlavorQuota) bool { return f.Flavor == c.flavor })
		if i < 0 {
			i = len(flavors)
			flavors = append(flavors, state.FlavorQuota{Flavor: c.flavor})
		}
		flavors[i].Resources = append(flavors[i].Resources, c.Quota)
	}
	home := map[string]int{} // of a resource: the index of its group
	for _, f := range flavors {
		g, ok := home[f.Resources[0].Resource]
		if !ok {
			g = len(groups)
			groups = append(groups, state.Group{})
			for _, q := range f.Resources {
				if _, taken := home[q.Resource]; taken {
					a.fail("flavor %s has %s, which is in a group of other resources: flavors of a group have the same resources", f.Flavor, q.Resource)
				}
				home[q.Resource] = g
				groups[g].Resources = append(groups[g].Resources, q.Resource)
			}
		}
		groups[g].Flavors = append(groups[g].Flavors, a.inOrder(f, groups[g].Resources))
	}
	return groups
}

// inOrder sorts the quotas of a flavor in the order of its group's resources.
func (a *args) inOrder(f state.FlavorQuota, resources []string) state.FlavorQuota {
	out := state.FlavorQuota{Flavor: f.Flavor}
	for _, r := range resources {
		for _, q := range f.Resources {
			if q.Resource == r {
				out.Resources = append(out.Resources, q)
			}
		}
	}
	if len(out.Resources) != len(resources) || len(f.Resources) != len(resources) {
		a.fail("flavor %s has not just %s, as other flavors of that group do: flavors of a group have the same resources",
			f.Flavor, strings.Join(resources, " and "))
	}
	return out
}
