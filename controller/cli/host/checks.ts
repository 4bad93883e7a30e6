import { accessSync, constants, existsSync, statfsSync, statSync } from 'node:fs'
import { dirname, join } from 'node:path'
import type { ComputeDriverKind } from '../../compute/kind.js'
import { namedDrivers } from '../../compute/placement.js'
import type { Configuration } from '../../config/schema.js'
import { postgresPrograms } from '../../database/private-cluster.js'
import { networkDriver } from '../../network/drivers.js'
import { OperatorError } from '../operator-error.js'
import { usesPrivateCluster } from '../state-directory/database-urls.js'
import type { Instance } from '../wiring/instance.js'
import { healthManagerHosts, keyChannelHosts } from '../wiring/network/host-networks.js'
import type { Listener } from './ports.js'

export function requireRoot(): void {
  if (process.getuid?.() === 0) return
  throw new OperatorError(
    'This command needs root: Krater creates network namespaces and runs PostgreSQL as the postgres account. Run it with sudo.',
  )
}

/** The first start generates SSH keys whatever the drivers. */
const OWN_PROGRAMS: ComputeDriverKind['programs'] = [['ssh-keygen', 'openssh-client']]

/** Debian packages that Krater and the configured drivers need and this machine lacks. */
export function missingPackages({ directory, config }: Instance): string[] {
  const kinds = [...namedDrivers(config.compute), networkDriver(config.network.driver)]
  const needed = [...OWN_PROGRAMS, ...kinds.flatMap(({ programs }) => programs)]
  const missing = needed.filter(([program]) => !isInstalled(program)).map(([, name]) => name)
  if (usesPrivateCluster(config, directory) && !hasPostgres()) missing.push('postgresql')
  return [...new Set(missing)]
}

export function requirePackages(instance: Instance): void {
  const missing = missingPackages(instance)
  if (missing.length === 0) return
  throw new OperatorError(
    `Debian packages are missing: ${missing.join(', ')}. \`npm start\` installs them, or run: apt-get install -y --no-install-recommends ${missing.join(' ')}`,
  )
}

/** Space for PostgreSQL and the first logs of amphorae. */
export const MIN_FREE_BYTES = 200 * 1024 * 1024

export function freeBytes(directory: string): number {
  const { bavail, bsize } = statfsSync(directory)
  return bavail * bsize
}

export function requireDiskSpace(directory: string): void {
  const free = freeBytes(directory)
  if (free >= MIN_FREE_BYTES) return
  throw new OperatorError(
    `The disk of ${directory} has only ${Math.round(free / 1024 / 1024)} MiB free; Krater needs ${MIN_FREE_BYTES / 1024 / 1024} MiB to start. Free some space, or set KRATER_STATE_DIR to a directory on another disk.`,
  )
}

/** PostgreSQL works below the state directory as the postgres account, so every directory above must be searchable. */
export function requireSearchablePath(directory: string): void {
  for (let above = dirname(directory); above !== '/'; above = dirname(above)) {
    if ((statSync(above).mode & 0o001) === 0) {
      throw new OperatorError(
        `PostgreSQL runs as the postgres account in ${directory}, but that account cannot enter ${above}. Run chmod o+x ${above}, or set KRATER_STATE_DIR to another directory.`,
      )
    }
  }
}

/**
 * The addresses on which the configured services listen.
 * @param healthManagerHost null leaves the health manager out
 */
export function listenersOf(config: Configuration, healthManagerHost: string | null): Listener[] {
  const tcp = [
    ...(config.identity.external_url === undefined
      ? [{ what: 'the identity API', setting: 'identity', ...config.identity }]
      : []),
    { what: 'the load balancer API', setting: 'load_balancer', ...config.load_balancer },
    { what: 'the network API', setting: 'network', ...config.network },
    { what: 'the key manager API', setting: 'key_manager', ...config.key_manager },
  ].map(({ what, setting, host, port }) => ({ what, setting, protocol: 'tcp' as const, host, port }))
  if (healthManagerHost === null) return tcp
  const { key_manager_url, key_manager_gateway_port } = config.load_balancer
  return [
    ...tcp,
    ...(key_manager_url === undefined
      ? []
      : [
          {
            what: 'the gateway to the key manager',
            setting: 'health_manager',
            portSetting: 'load_balancer.key_manager_gateway_port',
            protocol: 'tcp' as const,
            host: healthManagerHost,
            port: key_manager_gateway_port,
          },
        ]),
    ...keyChannelHosts(config, healthManagerHost).map((host, at) => ({
      what: 'the key channel',
      setting: 'key_manager.channel',
      ...(at > 0 && { hostSetting: 'host.address' }),
      protocol: 'tcp' as const,
      host,
      port: config.key_manager.channel.port,
    })),
    ...healthManagerHosts(config, healthManagerHost).map((host, at) => ({
      what: 'the health manager',
      setting: 'health_manager',
      ...(at > 0 && { hostSetting: 'host.address' }),
      protocol: 'udp' as const,
      host,
      port: config.health_manager.port,
    })),
  ]
}

function isInstalled(program: string): boolean {
  return (process.env.PATH ?? '').split(':').some(folder => {
    try {
      accessSync(join(folder, program), constants.X_OK)
      return existsSync(join(folder, program))
    } catch {
      return false
    }
  })
}

function hasPostgres(): boolean {
  try {
    postgresPrograms()
    return true
  } catch {
    return false
  }
}
