import type { Backend, HaproxyPart, Server } from '../protocol/desired.js'
import { afterReload, type Leaving, serversLeaving } from './leaving.js'

export type HaproxyFacts = {
  /** HAProxy is running. */
  running: boolean
  /** Old workers still have connections. */
  hasOldWorkers: boolean
  /** The servers already leaving. */
  leaving: readonly Leaving[]
  /** On the clock of `Leaving.since`. */
  now: number
}

/** One line for the runtime socket, and the answer that means success. */
export type RuntimeCommand = {
  text: string
  /** Any other answer makes the whole plan fail. */
  expect: string
}

/**
 * What to do with HAProxy. `retire` reloads a configuration that serves nothing, while old workers finish their
 * connections.
 */
type HaproxyAction =
  | { kind: 'unchanged' }
  | { kind: 'start' }
  | { kind: 'stop' }
  | { kind: 'retire' }
  | { kind: 'reload'; reason: string }
  | { kind: 'runtime'; commands: RuntimeCommand[] }

/** What to do, and the servers that are leaving afterwards. */
export type HaproxyTransition = HaproxyAction & { leaving: Leaving[] }

/**
 * Plans the cheapest way from the applied to the desired configuration. Members of backends and connection limits
 * change at runtime; everything else is one reload, with its reason. The order at runtime is: add servers, change
 * weights and states, take servers out of service; so a server is always available. No connection is closed:
 * leaving servers are deleted later, once they are free.
 */
export function planTransition(
  applied: HaproxyPart | null,
  desired: HaproxyPart | null,
  facts: HaproxyFacts,
): HaproxyTransition {
  const action = actionFor(applied, desired, facts)
  const leaving = serversLeaving(facts.leaving, applied, desired, facts.now)
  switch (action.kind) {
    case 'unchanged':
    case 'runtime':
      return { ...action, leaving }
    case 'reload':
    case 'retire':
      return { ...action, leaving: afterReload(leaving) }
    case 'start':
    case 'stop':
      return { ...action, leaving: [] }
  }
}

function actionFor(applied: HaproxyPart | null, desired: HaproxyPart | null, facts: HaproxyFacts): HaproxyAction {
  if (desired === null) {
    if (!facts.running) return { kind: 'unchanged' }
    if (applied !== null) return { kind: 'retire' }
    return facts.hasOldWorkers ? { kind: 'unchanged' } : { kind: 'stop' }
  }
  if (!facts.running) return { kind: 'start' }
  if (applied === null) return { kind: 'reload', reason: "HAProxy's running configuration is unknown" }
  if (applied.sha256 === desired.sha256) return { kind: 'unchanged' }
  if (applied.skeletonSha256 !== desired.skeletonSha256) {
    return { kind: 'reload', reason: 'more than pool members and connection limits changed' }
  }

  const limits = limitsOf(applied)
  if (desired.frontends.some(({ name }) => !limits.has(name) || !isPlainWord(name))) {
    return { kind: 'reload', reason: 'the current connection limits of the listeners are unknown' }
  }
  const changed = desired.frontends
    .filter(({ name, maxconn }) => limits.get(name) !== maxconn)
    .map(({ name, maxconn }) => silent(`set maxconn frontend ${name} ${maxconn}`))
  const added: RuntimeCommand[] = []
  const removed: RuntimeCommand[] = []
  const before = new Map(applied.backends.map(backend => [backend.name, backend]))
  for (const backend of desired.backends) {
    const old = before.get(backend.name)
    before.delete(backend.name)
    const leaving = facts.leaving.filter(one => one.backend === backend.name && one.held && one.removed)
    const reason = old === undefined ? `backend ${backend.name} is new` : reloadReason(old, backend, leaving)
    if (old === undefined || reason !== null) return { kind: 'reload', reason: reason ?? '' }

    const oldServers = new Map(old.servers.map(server => [server.name, server]))
    for (const server of backend.servers) {
      const oldServer = oldServers.get(server.name)
      oldServers.delete(server.name)
      if (oldServer !== undefined) changed.push(...updateCommands(backend.name, oldServer, server))
      else if (leaving.some(one => one.server.name === server.name)) added.push(...returnCommands(backend.name, server))
      else added.push(...addCommands(backend.name, server))
    }
    for (const { name } of oldServers.values()) removed.push(silent(`set server ${backend.name}/${name} state maint`))
  }
  for (const name of before.keys()) return { kind: 'reload', reason: `backend ${name} is gone` }
  const stays = changed.filter(command => !takesOutOfService(command))
  return { kind: 'runtime', commands: [...added, ...stays, ...changed.filter(takesOutOfService), ...removed] }
}

/** HAProxy reads a line into a buffer of 16 KiB. */
const MAX_LINE_LENGTH = 8_000

/**
 * Joins the commands into as few lines as possible, since each line costs a connection to HAProxy. A line runs to
 * its end even if a command in it fails; so commands that take servers out of service are on later lines than those
 * that add others.
 */
export function joinCommands(commands: readonly RuntimeCommand[]): RuntimeCommand[] {
  const lines: { commands: RuntimeCommand[]; length: number; takesOutOfService: boolean }[] = []
  for (const command of commands) {
    const last = lines.at(-1)
    const fits =
      last !== undefined &&
      last.takesOutOfService === takesOutOfService(command) &&
      last.length + command.text.length < MAX_LINE_LENGTH
    if (fits) {
      last.commands.push(command)
      last.length += command.text.length + 1
    } else
      lines.push({ commands: [command], length: command.text.length, takesOutOfService: takesOutOfService(command) })
  }
  return lines.map(line => ({
    text: line.commands.map(({ text }) => text).join(';'),
    expect: line.commands
      .map(({ expect }) => (expect === '' ? '\n' : `${expect}\n\n`))
      .join('')
      .trimEnd(),
  }))
}

const takesOutOfService = ({ text }: RuntimeCommand): boolean => text.endsWith(' state maint')

const limitsOf = ({ frontends }: HaproxyPart) => new Map(frontends.map(({ name, maxconn }) => [name, maxconn]))

/** Why the change of one backend needs a reload; null if the runtime socket can do it. */
function reloadReason(old: Backend, desired: Backend, leaving: readonly Leaving[]): string | null {
  if (old.dynamic !== desired.dynamic) return `backend ${desired.name} differs in its support for dynamic servers`
  const oldServers = new Map(old.servers.map(server => [server.name, server]))
  const taken = [...old.servers, ...leaving.map(({ server }) => server)]
  for (const server of desired.servers) {
    const oldServer = oldServers.get(server.name)
    oldServers.delete(server.name)
    if (![desired.name, server.name, ...server.options].every(isPlainWord)) {
      return `server ${server.name} has a word that the runtime socket cannot take`
    }
    const before = oldServer ?? leaving.find(one => one.server.name === server.name)?.server
    if (before === undefined) {
      if (!desired.dynamic) return `server ${server.name} cannot join backend ${desired.name} at runtime`
      const holder = taken.find(({ number }) => number === server.number)
      if (holder !== undefined) return `server ${server.name} reuses the number of server ${holder.name}`
      continue
    }
    if (!hasSameLine(before, server)) return `server ${server.name} changed in more than weight and state`
  }
  for (const { name } of oldServers.values()) {
    if (!desired.dynamic) return `server ${name} cannot leave backend ${desired.name} at runtime`
    if (!isPlainWord(name)) return `server ${name} has a name that the runtime socket cannot take`
  }
  return null
}

/** True if at most weight and administrative state differ. */
function hasSameLine(old: Server, desired: Server): boolean {
  return (
    old.number === desired.number &&
    old.address === desired.address &&
    old.port === desired.port &&
    old.backup === desired.backup &&
    old.options.length === desired.options.length &&
    old.options.every((word, i) => word === desired.options[i])
  )
}

function addCommands(backend: string, server: Server): RuntimeCommand[] {
  const path = `${backend}/${server.name}`
  const address = server.address.includes(':') ? `[${server.address}]` : server.address
  const words = [
    'add server',
    path,
    `${address}:${server.port}`,
    `id ${server.number}`,
    `weight ${server.weight}`,
    ...(server.backup ? ['backup'] : []),
    ...server.options,
  ]
  const commands: RuntimeCommand[] = [{ text: words.join(' '), expect: 'New server registered.' }]
  // An added server starts in maintenance, with its checks off.
  if (server.options.includes('check')) commands.push(silent(`enable health ${path}`))
  if (server.options.includes('agent-check')) commands.push(silent(`enable agent ${path}`))
  if (!server.disabled) commands.push(silent(`enable server ${path}`))
  return commands
}

/** Commands for a leaving server that is still present and stays after all. */
function returnCommands(backend: string, server: Server): RuntimeCommand[] {
  const path = `${backend}/${server.name}`
  const commands = [silent(`set server ${path} weight ${server.weight}`)]
  if (!server.disabled) commands.push(silent(`set server ${path} state ready`))
  return commands
}

function updateCommands(backend: string, old: Server, desired: Server): RuntimeCommand[] {
  const path = `${backend}/${desired.name}`
  const commands: RuntimeCommand[] = []
  if (old.weight !== desired.weight) commands.push(silent(`set server ${path} weight ${desired.weight}`))
  if (old.disabled !== desired.disabled) {
    commands.push(silent(`set server ${path} state ${desired.disabled ? 'maint' : 'ready'}`))
  }
  return commands
}

const silent = (text: string): RuntimeCommand => ({ text, expect: '' })

/** A word that neither ends a command nor is split or unescaped by the runtime socket. */
const isPlainWord = (word: string): boolean => /^[A-Za-z0-9_.:,/@%+=()[\]*?~!^|-]+$/.test(word)
