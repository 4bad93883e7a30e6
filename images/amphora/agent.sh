#!/bin/bash
# Becomes the agent: the one that an upgrade has left to try, else the one of the last upgrade, else the machine's own.
# Upgrades are files in /opt/krater/agents, named after their SHA-256; the links there say which one is what:
#   next     to be tried at the next start
#   trial    being tried; once it answers, it renames the link to `current` (amphora-agent/upgrade/trial.ts)
#   current  the last one that answered
# Each change is one rename, so whatever dies at any instant, the next start finds an agent that has answered before.
set -u
agents=/opt/krater/agents
agent=/opt/krater/agent.mjs

whole() { # LINK: prints the file that a link leads to, if its content has the hash in its name
  local file
  file=$(readlink -e "$agents/$1") || return 1
  echo "$(basename "$file" .mjs)  $file" | sha256sum --check --status && echo "$file"
}

if [ -d "$agents" ]; then
  # It ended, hung, or lost its power before it had answered. The agent reports what it printed.
  if [ -L "$agents/trial" ]; then
    { basename "$(readlink "$agents/trial")" .mjs; tail -c 2000 /run/krater/log/agent.out; } >/run/krater/upgrade.failed
    rm -f "$agents/trial"
  fi
  if [ -L "$agents/next" ]; then
    # A power failure must not let it be tried twice.
    mv -T "$agents/next" "$agents/trial"
    sync "$agents"
  fi
  if ! agent=$(whole trial); then
    rm -f "$agents/trial"
    agent=$(whole current) || agent=/opt/krater/agent.mjs
  fi
fi

exec /opt/krater/node "$agent"
