import { contains, parseCidr } from '../../../network/addresses.js'
import type { HostFacts, HostInterface } from './facts.js'

/** Programs that a host needs before it is enrolled; Debian's standard installation has them. */
const NEEDED_PROGRAMS = ['apt-get', 'dpkg', 'ip', 'nsenter', 'unshare', 'setpriv', 'perl', 'sshd', 'bash']
const NEEDED_DISK_KIB = 400 * 1024
const NEEDED_MEMORY_KIB = 240 * 1024
/** Heartbeats are refused beyond the health manager's 90 s, and a clock that is off by this already drifts further. */
const CLOCK_SECONDS = 20

/** Versions of each system that it is tried on, and the names that people know them by. */
const SYSTEMS: Readonly<Record<string, { name: string; tried: readonly string[]; untried: readonly string[] }>> = {
  debian: { name: 'Debian', tried: ['12', '13'], untried: [] },
  ubuntu: { name: 'Ubuntu', tried: [], untried: ['22.04', '24.04'] },
}

/** Node.js's names of the processors that `uname -m` names otherwise. */
const PROCESSORS: Readonly<Record<string, string>> = { x86_64: 'x64', aarch64: 'arm64' }

export type Asked = {
  /** This installation has enrolled it, or begun to. */
  isOurs: boolean
  /** Node.js's name of the controller's processor: the host gets the controller's own Node.js. */
  processor: string
  /** The controller's clock, in seconds since 1970. */
  now: number
}

/** Why a host cannot be enrolled, as sentences; empty if it can. Pure. */
export function refusals(facts: HostFacts, { isOurs, processor, now }: Asked): string[] {
  const { programs, running, enabled } = facts
  const missing = NEEDED_PROGRAMS.filter(name => !programs.has(name))
  const drift = Math.abs(facts.time - now)
  return [
    ...systemRefusal(facts),
    ...(facts.owner === null && (facts.hasAccount || facts.paths.length > 0)
      ? [
          `It has ${[...(facts.hasAccount ? ['an account krater'] : []), ...facts.paths].join(', ')}, which are none of an enrolment's.`,
        ]
      : []),
    ...(PROCESSORS[facts.architecture] === processor
      ? []
      : [`Its processor (${facts.architecture}) is another one than this controller’s, whose Node.js it would get.`]),
    ...(facts.usesSystemd ? [] : ['It does not run systemd.']),
    ...(missing.length === 0 ? [] : [`It lacks ${missing.join(', ')}.`]),
    ...(facts.hasNamespaces ? [] : ['Its kernel permits no network, mount and process namespaces.']),
    ...(facts.readsSshdSnippets
      ? []
      : [
          'Its /etc/ssh/sshd_config does not include /etc/ssh/sshd_config.d/*.conf, where the controllers’ login goes.',
        ]),
    ...running.map(name => `It runs ${name} itself. Stop that program and disable its service first.`),
    ...enabled
      .filter(name => !running.includes(name))
      .map(name => `It starts ${name} itself when it boots. Disable that service first.`),
    ...facts.portsInUse.map(
      port =>
        `A program on it listens on port ${port.replace(' ', '/')} of every address, which the host’s forwarder to the controllers needs. Have it listen on its own addresses only, or change health_manager.port or key_manager.channel.port.`,
    ),
    ...(facts.linkTaken === null
      ? []
      : [`It has a route into ${facts.linkTaken}, which lies between a host and its amphora. Remove that route.`]),
    ...(facts.diskKib >= NEEDED_DISK_KIB || isOurs
      ? []
      : [`It has ${Math.floor(facts.diskKib / 1024)} MiB of free disk below /opt; 400 are needed.`]),
    ...(facts.memoryKib >= NEEDED_MEMORY_KIB
      ? []
      : [`It has ${Math.floor(facts.memoryKib / 1024)} MiB of memory; 256 are needed.`]),
    ...(drift <= CLOCK_SECONDS
      ? []
      : [
          `Its clock is ${drift} s off this controller’s; at most ${CLOCK_SECONDS} s are accepted. Heartbeats of a clock that is further off are refused, so have it kept by NTP.`,
        ]),
  ]
}

function systemRefusal({ system, version }: HostFacts): string[] {
  const known = SYSTEMS[system]
  const names = Object.values(SYSTEMS).map(
    ({ name, tried, untried }) => `${name} ${[...tried, ...untried].join(' or ')}`,
  )
  if (known === undefined) return [`It runs ${system} ${version}, not ${names.join(', nor ')}.`]
  if (known.tried.includes(version) || known.untried.includes(version)) return []
  return [`It runs ${known.name} ${version}, not ${names.join(', nor ')}.`]
}

/** Whether the system is one that Krater's own tests enrol. */
export const isTried = ({ system, version }: HostFacts): boolean => SYSTEMS[system]?.tried.includes(version) ?? false

export type KnownNetwork = { id: string; name: string; cidrs: readonly string[] }

/** An interface that an operator gives to a network. */
export type AskedInterface = { network: string; mac: string }

/** An interface of a host, with the network that it leads to. */
export type GivenInterface = { networkId: string; networkName: string; mac: string; name: string }

/**
 * Which interfaces of a host lead to which networks: those that the operator names by their MAC addresses; without any,
 * those with an address in a subnet of a network. Pure.
 * @returns sentences instead if one cannot be used, or if there is none
 */
export function matchInterfaces(
  facts: Pick<HostFacts, 'interfaces' | 'clientRoute' | 'defaultRoutes'>,
  networks: readonly KnownNetwork[],
  asked: readonly AskedInterface[],
): { given: GivenInterface[] } | { problems: string[] } {
  const { interfaces } = facts
  const problems: string[] = []
  const given: GivenInterface[] = []
  const give = (one: HostInterface, network: KnownNetwork) =>
    given.push({ networkId: network.id, networkName: network.name, mac: one.mac, name: one.name })
  for (const { network: wanted, mac } of asked) {
    const network = networks.find(({ id, name }) => id === wanted || name === wanted)
    const [one, ...others] = interfaces.filter(each => each.mac === mac)
    if (network === undefined) problems.push(`There is no network ${wanted}.`)
    else if (one === undefined) problems.push(`The host has no interface with the MAC address ${mac}.`)
    else if (others.length > 0) problems.push(`Several interfaces of the host have the MAC address ${mac}.`)
    else give(one, network)
  }
  if (asked.length === 0) {
    for (const one of interfaces.filter(each => whyNot(each, facts) === null)) {
      const network = networks.find(({ cidrs }) =>
        one.addresses.some(address => cidrs.some(cidr => isIn(address, cidr))),
      )
      if (network !== undefined) give(one, network)
    }
  }
  for (const { name } of given) {
    const one = interfaces.find(each => each.name === name)
    const why = one === undefined ? null : whyNot(one, facts)
    if (why !== null) problems.push(why)
  }
  for (const { networkId, networkName, name } of given) {
    const twice = given.find(other => other.networkId === networkId && other.name !== name)
    if (twice !== undefined && twice.name > name)
      problems.push(`Both ${name} and ${twice.name} lead to the network ${networkName}.`)
  }
  if (problems.length > 0) return { problems }
  if (given.length > 0) return { given }
  return { problems: [nothingMatches(facts)] }
}

/** @param address with its prefix length */
function isIn(address: string, cidr: string): boolean {
  const subnet = parseCidr(cidr)
  return subnet !== null && contains(subnet, address.split('/')[0] ?? '')
}

/** Why an amphora cannot have an interface; null if it can. */
function whyNot(
  { name, isShared }: HostInterface,
  { clientRoute, defaultRoutes }: Pick<HostFacts, 'clientRoute' | 'defaultRoutes'>,
) {
  if (name === clientRoute) return `The interface ${name} leads to this controller; an amphora needs another one.`
  if (defaultRoutes.includes(name))
    return `The host’s default route goes by ${name}; an amphora needs another interface.`
  if (isShared)
    return `The interface ${name} belongs to a bridge or a bond, or has VLANs; an amphora needs one for itself.`
  return null
}

function nothingMatches({ interfaces, clientRoute }: Pick<HostFacts, 'interfaces' | 'clientRoute'>): string {
  const others = interfaces.filter(({ name }) => name !== clientRoute).map(({ name, mac }) => `${name} ${mac}`)
  return others.length === 0
    ? 'The host has no interface besides the one that leads to this controller. An amphora needs one for itself on each network of its load balancer.'
    : `No interface of the host has an address in a subnet of a network. Say which leads where with --interface NETWORK=MAC. It has ${others.join(', ')}.`
}
