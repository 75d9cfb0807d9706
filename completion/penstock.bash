# Made by ci/options-doc: what bash completes behind `penstock`.
_penstock() {
    local word="${COMP_WORDS[COMP_CWORD]}" command= flags= i
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "${COMP_WORDS[i]}" in
        put|get|ls|rm|stat|ping|flush|clear|dump|load|watch|follow|node|bench|replay|tree|help) command=${COMP_WORDS[i]}; break ;;
        esac
    done
    case "$command" in
    '' | help) COMPREPLY=($(compgen -W "put get ls rm stat ping flush clear dump load watch follow node bench replay tree help --help --version" -- "$word")); return ;;
    put) flags="--url --secret-file --timeout --json --recursive -r --prefix --files --if-absent --if-generation --ttl --checksum --durable" ;;
    get) flags="--url --secret-file --timeout --json --recursive -r --wait --range --prefix --files --sha256" ;;
    ls) flags="--url --secret-file --timeout --json --long --bytes" ;;
    rm) flags="--url --secret-file --timeout --json --prefix --if-generation" ;;
    stat) flags="--url --secret-file --timeout --json --all --bytes" ;;
    ping) flags="--url --secret-file --timeout --json" ;;
    flush) flags="--url --secret-file --timeout --json" ;;
    clear) flags="--url --secret-file --timeout --json" ;;
    dump) flags="--url --secret-file --timeout --json" ;;
    load) flags="--url --secret-file --timeout --json --if-absent --replace --checksum" ;;
    watch) flags="--url --secret-file --timeout --json" ;;
    follow) flags="--url --secret-file --timeout --json" ;;
    node) flags="--url --secret-file --timeout --json" ;;
    bench) flags="--url --secret-file --timeout --json --prefix --op --size --keys --batch --inflight --seconds --fill --mix --until-full" ;;
    replay) flags="--url --secret-file --timeout --json --page-size --policy --capacity --ssd --ssd-capacity --clients --belady --plot" ;;
    tree) flags="--url --secret-file --timeout --json --token-file --group --members --force --filter" ;;
    esac
    COMPREPLY=()
    [[ $word != -* ]] || COMPREPLY=($(compgen -W "$flags --help" -- "$word"))
}
complete -o default -F _penstock penstock
