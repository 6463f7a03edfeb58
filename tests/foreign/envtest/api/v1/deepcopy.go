package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// DeepCopyInto copies a Guestbook.
func (in *Guestbook) DeepCopyInto(out *Guestbook) {
	*out = *in
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	if in.Status.Conditions != nil {
		out.Status.Conditions = make([]metav1.Condition, len(in.Status.Conditions))
		for i := range in.Status.Conditions {
			in.Status.Conditions[i].DeepCopyInto(&out.Status.Conditions[i])
		}
	}
}

// DeepCopy copies a Guestbook.
func (in *Guestbook) DeepCopy() *Guestbook {
	out := new(Guestbook)
	in.DeepCopyInto(out)
	return out
}

// DeepCopyObject copies a Guestbook.
func (in *Guestbook) DeepCopyObject() runtime.Object { return in.DeepCopy() }

// DeepCopyObject copies a GuestbookList.
func (in *GuestbookList) DeepCopyObject() runtime.Object {
	out := &GuestbookList{TypeMeta: in.TypeMeta, Items: make([]Guestbook, len(in.Items))}
	in.ListMeta.DeepCopyInto(&out.ListMeta)
	for i := range in.Items {
		in.Items[i].DeepCopyInto(&out.Items[i])
	}
	return out
}
