# Made by ci/options-doc: what bash completes behind `penstock`.
_penstock() {
    local word="${COMP_WORDS[COMP_CWORD]}" command= flags= i
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "$command${command:+ }${COMP_WORDS[i]}" in
        put|get|ls|rm|stat|top|ping|flush|clear|dump|load|watch|follow|node|bench|replay|tree|help|data|'data put'|'data get'|'data ls'|'data rm'|'data mkdir'|'data sync'|'data watch') command="$command${command:+ }${COMP_WORDS[i]}" ;;
        esac
    done
    case "$command" in
    '' | help) COMPREPLY=($(compgen -W "put get ls rm stat top ping flush clear dump load watch follow node bench replay tree help data --help --version" -- "$word")); return ;;
    data) COMPREPLY=($(compgen -W "put get ls rm mkdir sync watch --help" -- "$word")); return ;;
    put) flags="--url --secret-file --tls --tls-ca --tls-certificate --tls-key --tls-name --traceparent --timeout --json --recursive -r --prefix --files --if-absent --if-generation --ttl --checksum --durable --transport" ;;
    get) flags="--url --secret-file --tls --tls-ca --tls-certificate --tls-key --tls-name --traceparent --timeout --json --recursive -r --wait --range --prefix --files --sha256 --transport" ;;
    ls) flags="--url --secret-file --tls --tls-ca --tls-certificate --tls-key --tls-name --traceparent --timeout --json --long -l --bytes --transport" ;;
    rm) flags="--url --secret-file --tls --tls-ca --tls-certificate --tls-key --tls-name --traceparent --timeout --json --prefix --if-generation --transport" ;;
    stat) flags="--url --secret-file --tls --tls-ca --tls-certificate --tls-key --tls-name --traceparent --timeout --json --all --bytes --transport" ;;
    top) flags="--url --secret-file --tls --tls-ca --tls-certificate --tls-key --tls-name --traceparent --timeout --json --every --count --transport" ;;
    ping) flags="--url --secret-file --tls --tls-ca --tls-certificate --tls-key --tls-name --traceparent --timeout --json --transport" ;;
    flush) flags="--url --secret-file --tls --tls-ca --tls-certificate --tls-key --tls-name --traceparent --timeout --json --transport" ;;
    clear) flags="--url --secret-file --tls --tls-ca --tls-certificate --tls-key --tls-name --traceparent --timeout --json --transport" ;;
    dump) flags="--url --secret-file --tls --tls-ca --tls-certificate --tls-key --tls-name --traceparent --timeout --json --transport" ;;
    load) flags="--url --secret-file --tls --tls-ca --tls-certificate --tls-key --tls-name --traceparent --timeout --json --if-absent --replace --checksum --transport" ;;
    watch) flags="--url --secret-file --tls --tls-ca --tls-certificate --tls-key --tls-name --traceparent --timeout --json --transport" ;;
    follow) flags="--url --secret-file --tls --tls-ca --tls-certificate --tls-key --tls-name --traceparent --timeout --json --transport" ;;
    node) flags="--url --secret-file --tls --tls-ca --tls-certificate --tls-key --tls-name --traceparent --timeout --json --wait --transport" ;;
    bench) flags="--url --secret-file --tls --tls-ca --tls-certificate --tls-key --tls-name --traceparent --timeout --json --prefix --op --size --keys --batch --inflight --seconds --fill --mix --until-full --transport" ;;
    replay) flags="--url --secret-file --tls --tls-ca --tls-certificate --tls-key --tls-name --traceparent --timeout --json --page-size --policy --capacity --ssd --ssd-capacity --clients --belady --plot --transport" ;;
    tree) flags="--url --secret-file --tls --tls-ca --tls-certificate --tls-key --tls-name --traceparent --timeout --json --long -l --bytes --durable --token-file --group --members --force --in-place --filter --transport" ;;
    'data put') flags="--timeout --json --token-file --force --in-place --filter --store --rsync --ca --namespace --transport --contents --lifespan" ;;
    'data get') flags="--timeout --json --token-file --force --in-place --filter --store --rsync --ca --namespace --transport --contents" ;;
    'data ls') flags="--timeout --json --long -l --token-file --store --ca --namespace" ;;
    'data rm') flags="--timeout --json --recursive -r --prefix --token-file --store --ca --namespace" ;;
    'data mkdir') flags="--timeout --json --token-file --store --ca --namespace" ;;
    'data sync') flags="--timeout --json --token-file --force --in-place --filter --store --rsync --ca --namespace --transport --lifespan --delete" ;;
    'data watch') flags="--timeout --json --token-file --store --ca --namespace" ;;
    esac
    COMPREPLY=()
    [[ $word != -* ]] || COMPREPLY=($(compgen -W "$flags --help" -- "$word"))
}
complete -o default -F _penstock penstock
