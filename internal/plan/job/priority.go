package job

import (
	"fmt"

	schedulingv1 "k8s.io/api/scheduling/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// Classes are the priority classes that a job may use: those of the names in ClassNames, and the default.
type Classes struct {
	Workload map[string]*kueue.WorkloadPriorityClass
	Pod      map[string]*schedulingv1.PriorityClass
	// Default is the PriorityClass for pods that name none: of several, the one with the lowest value.
	Default *schedulingv1.PriorityClass
}

// Priority is the priority of a Workload and where it came from. A nil Ref means no class.
type Priority struct {
	Ref   *kueue.PriorityClassRef
	Value int32
}

// MissingClassError says that a priority class does not exist.
type MissingClassError struct {
	Kind kueue.PriorityClassKind
	Name string
}

func (e *MissingClassError) Error() string {
	return fmt.Sprintf("%s %q does not exist: create it or name another one", e.Kind, e.Name)
}

// ClassNames are the names of the classes that decide about the job: the WorkloadPriorityClass of its label, and the
// PriorityClass that counts without one. Either may be empty.
func ClassNames(d *Descriptor, job Object, podSets []kueue.PodSet) (workload, pod string) {
	workload = job.GetLabels()[kueue.PriorityClassLabel]
	if d.PriorityClass != nil {
		pod = d.PriorityClass(job)
	}
	for i := 0; pod == "" && i < len(podSets); i++ {
		pod = podSets[i].Template.Spec.PriorityClassName
	}
	return workload, pod
}

// resolvePriority finds the priority of a job. A class that does not exist is a MissingClassError (spec: 30 §4.6).
func resolvePriority(d *Descriptor, job Object, podSets []kueue.PodSet, classes Classes) (Priority, error) {
	workload, pod := ClassNames(d, job, podSets)
	switch {
	case workload != "":
		class := classes.Workload[workload]
		if class == nil {
			return Priority{}, &MissingClassError{kueue.WorkloadPriorityClassKind, workload}
		}
		return workloadPriority(class), nil
	case pod != "":
		class := classes.Pod[pod]
		if class == nil {
			return Priority{}, &MissingClassError{kueue.PodPriorityClassKind, pod}
		}
		return podPriority(class), nil
	case classes.Default != nil:
		return podPriority(classes.Default), nil
	default:
		return Priority{}, nil
	}
}

func workloadPriority(class *kueue.WorkloadPriorityClass) Priority {
	return Priority{
		Ref:   &kueue.PriorityClassRef{Group: kueue.WorkloadPriorityClassGroup, Kind: kueue.WorkloadPriorityClassKind, Name: class.Name},
		Value: class.Value,
	}
}

func podPriority(class *schedulingv1.PriorityClass) Priority {
	return Priority{
		Ref:   &kueue.PriorityClassRef{Group: kueue.PodPriorityClassGroup, Kind: kueue.PodPriorityClassKind, Name: class.Name},
		Value: class.Value,
	}
}
