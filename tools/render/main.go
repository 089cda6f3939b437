// Command render prints the rendered packages of Berth, for the tests that compare them with `berth install --print`:
//
//	render chart DIR [-n NAMESPACE] [-r RELEASE] [-f VALUES.yaml]
//	render kustomize DIR
//
// It links the libraries of Helm and kustomize, so that neither program must be installed.
package main

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "render:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 2 {
		return errors.New("want chart or kustomize, and a folder")
	}
	switch args[0] {
	case "chart":
		return chart(args[1], args[2:])
	case "kustomize":
		built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), args[1])
		if err != nil {
			return err
		}
		text, err := built.AsYaml()
		if err != nil {
			return err
		}
		_, err = os.Stdout.Write(text)
		return err
	}
	return fmt.Errorf("%s is neither chart nor kustomize", args[0])
}

// chart prints the templates of a chart as an install renders them, in the order of their names.
func chart(dir string, args []string) error {
	flags := flag.NewFlagSet("chart", flag.ContinueOnError)
	release := chartutil.ReleaseOptions{IsInstall: true, Revision: 1}
	flags.StringVar(&release.Namespace, "n", "berth-system", "namespace of the release")
	flags.StringVar(&release.Name, "r", "kueue", "name of the release")
	file := flags.String("f", "", "file with values")
	if err := flags.Parse(args); err != nil {
		return err
	}
	loaded, err := loader.LoadDir(dir)
	if err != nil {
		return err
	}
	values := chartutil.Values{}
	if *file != "" {
		if values, err = chartutil.ReadValuesFile(*file); err != nil {
			return err
		}
	}
	if values, err = chartutil.ToRenderValuesWithSchemaValidation(loaded, values, release, chartutil.DefaultCapabilities, false); err != nil {
		return err
	}
	made, err := engine.Engine{Strict: true}.Render(loaded, values)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(made)) {
		if text := strings.TrimSpace(made[name]); text != "" && strings.HasSuffix(name, ".yaml") {
			fmt.Printf("---\n# Source: %s\n%s\n", name, text)
		}
	}
	return nil
}
