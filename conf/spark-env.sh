# Spark's scripts read this file before they start a JVM.
#
# bin/spark-class always starts Java with two options for which Java prints a warning, and no
# configuration of a log can hide it. Spark uses the module only for linear algebra, and has other code
# for a Java without it. The package is missing in new versions of Java, which ignore the option.
case "$0" in
  */spark-class)
    # Functions of this file would be exported, and replace exec in programs that the job starts.
    set +a
    # With POSIX rules, Bash allows no function of this name.
    set +o posix
    exec() {
      local java word module=--add-modules=jdk.incubator.vector command=()
      local package=$module
      java=$(readlink -f "$(command -v "$1")")
      if grep -Eqs '^JAVA_VERSION="(2[5-9]|[3-9][0-9])' "${java%/bin/java}/release"; then
        package=--add-opens=java.base/sun.security.action=ALL-UNNAMED
      fi
      for word; do
        case "$word" in
          "$module" | "$package") ;;
          *) command+=("$word") ;;
        esac
      done
      builtin exec "${command[@]}"
    }
    ;;
esac
