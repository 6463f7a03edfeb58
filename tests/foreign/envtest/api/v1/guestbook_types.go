// Package v1 holds the kind Guestbook.
// +kubebuilder:object:generate=true
// +groupName=books.example.com
package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	// GroupVersion of the kinds in this package.
	GroupVersion = schema.GroupVersion{Group: "books.example.com", Version: "v1"}

	// SchemeBuilder collects the kinds of this package.
	SchemeBuilder = runtime.NewSchemeBuilder(func(scheme *runtime.Scheme) error {
		scheme.AddKnownTypes(GroupVersion, &Guestbook{}, &GuestbookList{})
		metav1.AddToGroupVersion(scheme, GroupVersion)
		return nil
	})

	// AddToScheme adds them to a scheme.
	AddToScheme = SchemeBuilder.AddToScheme
)

// GuestbookSpec is what a user asks for.
type GuestbookSpec struct {
	// +kubebuilder:validation:MinLength=1
	Title string `json:"title"`
	// +kubebuilder:validation:Minimum=1
	Pages int32 `json:"pages,omitempty"`
}

// GuestbookStatus is what the controller reports.
type GuestbookStatus struct {
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Guestbook is a book whose pages are ConfigMaps.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
type Guestbook struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   GuestbookSpec   `json:"spec"`
	Status GuestbookStatus `json:"status,omitempty"`
}

// GuestbookList is a list of Guestbooks.
// +kubebuilder:object:root=true
type GuestbookList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Guestbook `json:"items"`
}
