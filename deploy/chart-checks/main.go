// Command pod-security reads Kubernetes manifests from standard input and holds every pod in them to the restricted
// Pod Security Standard, with the very checks that an API server's admission has.
//
// A line for each violation goes to standard error; the status is 1 if there is one, and 2 for input that is no
// manifest, or has no pod at all.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"
)

// manifest is as much of any workload as leads to its pods.
type manifest struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        metav1.ObjectMeta `json:"metadata"`
	Spec            struct {
		Template    *template `json:"template"`
		JobTemplate *struct {
			Spec struct {
				Template template `json:"template"`
			} `json:"spec"`
		} `json:"jobTemplate"`
	} `json:"spec"`
}

type template struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     corev1.PodSpec    `json:"spec"`
}

// podOf is the pod that a manifest stands for; nil when it stands for none.
func podOf(text []byte) (*manifest, *template, error) {
	var found manifest
	if err := yaml.Unmarshal(text, &found); err != nil {
		return nil, nil, err
	}
	switch found.Kind {
	case "":
		return nil, nil, nil
	case "Pod":
		var pod template
		err := yaml.Unmarshal(text, &pod)
		return &found, &pod, err
	case "CronJob":
		if found.Spec.JobTemplate == nil {
			return nil, nil, fmt.Errorf("CronJob %s has no job template", found.Metadata.Name)
		}
		return &found, &found.Spec.JobTemplate.Spec.Template, nil
	case "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job":
		if found.Spec.Template == nil {
			return nil, nil, fmt.Errorf("%s %s has no pod template", found.Kind, found.Metadata.Name)
		}
		return &found, found.Spec.Template, nil
	}
	return nil, nil, nil
}

// check evaluates all manifests of the input; it returns how many pods it saw and how many rules they break.
func check(input io.Reader, report io.Writer) (pods int, violations int, err error) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		return 0, 0, err
	}
	restricted := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(input))
	for {
		text, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return pods, violations, nil
		}
		if err != nil {
			return pods, violations, err
		}
		workload, pod, err := podOf(text)
		if err != nil {
			return pods, violations, err
		}
		if pod == nil {
			continue
		}
		pods++
		for _, result := range evaluator.EvaluatePod(restricted, &pod.Metadata, &pod.Spec) {
			if !result.Allowed {
				violations++
				fmt.Fprintf(report, "%s %s: %s: %s\n", workload.Kind, workload.Metadata.Name, result.ForbiddenReason, result.ForbiddenDetail)
			}
		}
	}
}

func main() {
	pods, violations, err := check(os.Stdin, os.Stderr)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "pod-security:", err)
		os.Exit(2)
	case pods == 0:
		fmt.Fprintln(os.Stderr, "pod-security: no pod in the input")
		os.Exit(2)
	case violations > 0:
		os.Exit(1)
	}
	fmt.Printf("%d pods are restricted\n", pods)
}
