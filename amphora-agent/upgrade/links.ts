import {
  closeSync,
  existsSync,
  fsyncSync,
  openSync,
  readdirSync,
  readlinkSync,
  renameSync,
  rmSync,
  symlinkSync,
} from 'node:fs'
import { basename, join } from 'node:path'
import { AGENTS_DIRECTORY } from '../protocol/paths.js'

/** Links among the agents of upgrades; see images/amphora/agent.sh. */
export type AgentLink = 'next' | 'trial' | 'current'

/** The file of the agent with this hash. */
export const agentFile = (sha256: string): string => join(AGENTS_DIRECTORY, `${sha256}.mjs`)

/** Where the link leads: the hash of a bundle; null if there is no such link. */
export function linked(link: AgentLink): string | null {
  try {
    return basename(readlinkSync(join(AGENTS_DIRECTORY, link)), '.mjs')
  } catch {
    return null
  }
}

/** Makes the link lead to another agent, at once and for the time after a power failure too. */
export function setLink(link: AgentLink, sha256: string): void {
  const path = join(AGENTS_DIRECTORY, link)
  rmSync(`${path}.new`, { force: true })
  symlinkSync(`${sha256}.mjs`, `${path}.new`)
  renameSync(`${path}.new`, path)
  syncAgents()
}

/** The agent on trial has answered: it replaces the former one for good. */
export function confirmTrial(): void {
  const former = linked('current')
  renameSync(join(AGENTS_DIRECTORY, 'trial'), join(AGENTS_DIRECTORY, 'current'))
  syncAgents()
  if (former !== null && former !== linked('current') && former !== linked('next')) {
    rmSync(agentFile(former), { force: true })
  }
}

/** Makes renames in the directory survive a power failure. */
export function syncAgents(): void {
  const directory = openSync(AGENTS_DIRECTORY, 'r')
  try {
    fsyncSync(directory)
  } finally {
    closeSync(directory)
  }
}

/** Removes agents that no link leads to, and what an agent that was killed has left half written. */
export function removeUnused(): void {
  if (!existsSync(AGENTS_DIRECTORY)) return
  const used = (['next', 'trial', 'current'] as const).flatMap(link => [link, `${linked(link)}.mjs`])
  for (const name of readdirSync(AGENTS_DIRECTORY)) {
    if (!used.includes(name)) rmSync(join(AGENTS_DIRECTORY, name), { force: true })
  }
}
