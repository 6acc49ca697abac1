# berth nodes: every class, those that cannot be computed, and scripts that ask for some.
. "$(dirname "$0")/lib.sh"
"$berth" help | grep -q '^  nodes ' || exit 77 # built without workflows

run 0 nodes
out_has '^KSampler$'
run 0 nodes --missing
out_lacks '^KSampler'
run 0 nodes KSampler VAEDecode
[ "$(grep -c '^[^ ]' .out)" -eq 2 ] || fail "asked for two classes"
run 1 nodes KSampler NoSuchClass
out_has '^KSampler$'
err_has '^berth nodes: NoSuchClass is not known'
run 0 nodes TextGenerate
out_has '^    clip  *CLIP$'
out_has '^    sampling_mode  *COMBO: on, off$'
out_has '^    sampling_mode.temperature  *FLOAT 0.7 (with sampling_mode=on)$'
out_has '^    sampling_mode.presence_penalty  *FLOAT 0, optional (with sampling_mode=on)$'
run 0 nodes TextGenerate --json
json 0/inputs/7/name sampling_mode.temperature
json 0/inputs/7/with sampling_mode=on
run 0 nodes --json
out_lacks '"inputs"'
run 1 nodes KSampelr
err_has "^berth nodes: KSampelr is not known, did you mean 'KSampler'?"
run 1 nodes vaedecodetile
err_has "did you mean 'VAEDecodeTiled'?"
run 1 nodes Image
err_has 'is not known, did you mean'
run 1 nodes NoSuchClass KSampler --json
json 0/class NoSuchClass
json 0/runs false
json 1/runs true
json 1/module nodes
run 2 nodes --such
