import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { CONFIGURATIONS } from '../apply/store.js'
import type { Observed } from '../network/observed.js'
import { observeNetwork } from '../network/observed.js'
import { run } from '../process/run.js'
import { KEPT_STATE_FILE, LEFT_BEHIND_FILE } from '../protocol/paths.js'

/** The machine's own interfaces: the loopback interface, and the way to its host. */
const OWN_INTERFACES = new Set(['lo', 'mgmt0'])
const OWN_TABLES = new Set(['inet krater_management'])
const PROGRAMS = new Set(['haproxy', 'keepalived'])

/** What there is of an amphora on this machine, by looking at all of it anew; empty if there is nothing. */
export async function survey(): Promise<string[]> {
  const [network, tables] = await Promise.all([observeNetwork(), run('nft', ['list', 'tables'])])
  return judgeSurvey({
    leftBehind: linesOf(LEFT_BEHIND_FILE),
    files: [
      ...(existsSync(KEPT_STATE_FILE) ? [KEPT_STATE_FILE] : []),
      ...namesIn(CONFIGURATIONS).map(name => `${CONFIGURATIONS}/${name}`),
    ],
    programs: programsRunning(),
    network,
    tables: tables.stdout.split('\n').flatMap(line => /^table (.+)$/.exec(line.trim())?.[1] ?? []),
  })
}

export type Surveyed = {
  leftBehind: readonly string[]
  files: readonly string[]
  programs: readonly string[]
  network: Pick<Observed, 'links' | 'addresses' | 'routes'>
  /** nftables' tables with their families. */
  tables: readonly string[]
}

/** Pure. */
export function judgeSurvey({ leftBehind, files, programs, network, tables }: Surveyed): string[] {
  const tenants = (device: string) => !OWN_INTERFACES.has(device)
  return [
    ...leftBehind,
    ...files.map(file => `the file ${file} is there`),
    ...programs.map(name => `${name} runs`),
    ...network.addresses
      .filter(({ device }) => tenants(device))
      .map(({ device, address }) => `${device} has the address ${address}`),
    ...network.routes
      .filter(({ device }) => tenants(device))
      .map(({ device, destination }) => `a route leads to ${destination} by ${device}`),
    ...tables.filter(table => !OWN_TABLES.has(table)).map(table => `nftables has the table ${table}`),
  ]
}

function programsRunning(): string[] {
  const pids = readdirSync('/proc').filter(name => /^\d+$/.test(name))
  return pids.flatMap(pid => linesOf(`/proc/${pid}/comm`)).filter(name => PROGRAMS.has(name))
}

function linesOf(path: string): string[] {
  try {
    return readFileSync(path, 'utf8').split('\n').filter(Boolean)
  } catch {
    return []
  }
}

function namesIn(directory: string): string[] {
  return existsSync(directory) ? readdirSync(directory) : []
}
