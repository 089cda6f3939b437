package plan

// HostfileSize is the length that the hostfile of a TrainJob will have.
func HostfileSize(in *Input) int64 {
	b := newBuilder(in)
	return b.hostfileSize(b.slots(in.Runtime.Spec.MLPolicy.MPI))
}
