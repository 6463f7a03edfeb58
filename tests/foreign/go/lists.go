package main

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// paging reads a list in pages, by selectors, and removes what is selected.
func paging(w *world) {
	maps := kubernetes.NewForConfigOrDie(w.config).CoreV1().ConfigMaps(w.namespace)
	for at := range 7 {
		one := configMap(fmt.Sprintf("page-%d", at), nil)
		one.Labels["parity"] = []string{"even", "odd"}[at%2]
		_, err := maps.Create(w.ctx, one, metav1.CreateOptions{})
		w.must(err)
	}
	options := metav1.ListOptions{LabelSelector: "by=foreign", Limit: 3}
	for {
		page, err := maps.List(w.ctx, options)
		w.must(err)
		names := ""
		for _, one := range page.Items {
			names += " " + one.Name
		}
		w.tell("page:%s, goes on %t, says how many are left %t", names, page.Continue != "", page.RemainingItemCount != nil)
		if page.Continue == "" {
			break
		}
		options.Continue = page.Continue
	}
	whole, err := maps.List(w.ctx, metav1.ListOptions{Limit: 2})
	w.must(err)
	w.tell("without a selector: %d items, %d left", len(whole.Items), *whole.RemainingItemCount)
	odd, err := maps.List(w.ctx, metav1.ListOptions{LabelSelector: "parity in (odd)"})
	w.must(err)
	named, err := maps.List(w.ctx, metav1.ListOptions{FieldSelector: "metadata.name=page-4"})
	w.must(err)
	w.tell("selected: %d by label, %d by field", len(odd.Items), len(named.Items))
	_, err = maps.List(w.ctx, metav1.ListOptions{FieldSelector: "data.k=v"})
	w.refused("a field that cannot be selected", err)
	_, err = maps.List(w.ctx, metav1.ListOptions{Continue: "nonsense", Limit: 1})
	w.refused("a continue token that is none", err)
	w.must(maps.DeleteCollection(w.ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "parity=odd"}))
	left, err := maps.List(w.ctx, metav1.ListOptions{LabelSelector: "by=foreign"})
	w.must(err)
	w.tell("left after the odd ones were deleted: %d", len(left.Items))
	w.must(maps.DeleteCollection(w.ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "by=foreign"}))
}
