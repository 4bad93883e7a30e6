import { existsSync, mkdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { endProcesses, identityOf, type ProcessIdentity, readOrNull } from '../../../process/process-identity.js'
import { runTool } from '../../local/ip-command.js'
import { type DatabaseName, type OvnLayout, ovnLayout } from './layout.js'

/** `system` is the kernel's datapath, `netdev` the one in ovs-vswitchd itself. */
export type Datapath = 'system' | 'netdev'

export type OwnOvnOptions = {
  stateDirectory: string
  /** The network namespace in which the switch connects ports. */
  namespace: string
  /** Of this installation: the chassis' name. */
  instance: string
  datapath: Datapath
}

const DAEMONS = ['ovn-controller', 'ovn-northd', 'ovs-vswitchd', 'southbound', 'northbound', 'switch']

type Daemon = { name: string; argv: [string, ...string[]] }

/**
 * OVN's daemons, as one host needs them all. They outlive the controller, as amphorae do: what they forward goes on.
 */
export class OwnOvn {
  readonly layout: OvnLayout
  readonly datapath: Datapath
  readonly #options: OwnOvnOptions

  constructor(options: OwnOvnOptions) {
    this.#options = options
    this.layout = ovnLayout(options.stateDirectory)
    this.datapath = options.datapath
  }

  /**
   * Starts what does not run. Safe to repeat.
   * @returns the names of the daemons that it started
   * @throws IpCommandError with what a program says
   */
  async ensure(): Promise<string[]> {
    mkdirSync(this.layout.directory, { recursive: true, mode: 0o700 })
    const started: string[] = []
    for (const name of ['switch', 'northbound', 'southbound'] as const) {
      await this.#ensureDatabase(name)
      if (await this.#ensureDaemon(this.#databaseServer(name))) started.push(`ovsdb-server of ${name}`)
    }
    await this.#configure()
    for (const daemon of this.#daemons()) if (await this.#ensureDaemon(daemon)) started.push(daemon.name)
    return started
  }

  /** Whether all run. */
  isComplete(): boolean {
    return this.missing().length === 0
  }

  /** Names of those that do not run. */
  missing(): string[] {
    return DAEMONS.filter(name => this.#identityOf(name) === null)
  }

  /** Those that run, in the order in which they end best. */
  running(): { name: string; identity: ProcessIdentity }[] {
    return DAEMONS.flatMap(name => {
      const identity = this.#identityOf(name)
      return identity === null ? [] : [{ name, identity }]
    })
  }

  /** Stops all. Nothing forwards any more. */
  async stop(): Promise<void> {
    for (const { identity } of this.running()) await endProcesses([identity], { graceMs: 5_000 })
  }

  async #ensureDatabase(name: DatabaseName): Promise<void> {
    const { file, schema } = this.layout.databases[name]
    if (!existsSync(file)) {
      await runTool(['ovsdb-tool', 'create', file, schema], '')
      return
    }
    // Debian's next version brings its own schema.
    const needs = await runTool(['ovsdb-tool', 'needs-conversion', file, schema], '')
    if (needs.trim() === 'yes' && this.#identityOf(name) === null)
      await runTool(['ovsdb-tool', 'convert', file, schema], '')
  }

  #databaseServer(name: DatabaseName): Daemon {
    const { file, socket } = this.layout.databases[name]
    return { name, argv: ['ovsdb-server', file, `--remote=punix:${socket}`] }
  }

  #daemons(): Daemon[] {
    const { switch: conf, northbound, southbound } = this.layout.databases
    return [
      { name: 'ovs-vswitchd', argv: ['ovs-vswitchd', `unix:${conf.socket}`] },
      {
        name: 'ovn-northd',
        argv: ['ovn-northd', `--ovnnb-db=unix:${northbound.socket}`, `--ovnsb-db=unix:${southbound.socket}`],
      },
      { name: 'ovn-controller', argv: ['ovn-controller', `unix:${conf.socket}`] },
    ]
  }

  async #configure(): Promise<void> {
    const { switch: conf, northbound, southbound } = this.layout.databases
    const { instance, datapath } = this.#options
    const switchDb = `--db=unix:${conf.socket}`
    await runTool(['ovs-vsctl', switchDb, '--no-wait', 'init'], '')
    const ids = {
      'system-id': `krater-${instance}`,
      'ovn-remote': `unix:${southbound.socket}`,
      'ovn-encap-type': 'geneve',
      'ovn-encap-ip': '127.0.0.1',
      'ovn-bridge-datapath-type': datapath,
      // An ovn-controller that starts leaves the flows of the former one until it knows its own.
      'ovn-ofctrl-wait-before-clear': '1000',
    }
    const words = [
      ...Object.entries(ids).map(([key, value]) => `external-ids:${key}=${value}`),
      // Machines leave checksums to their interfaces. Without this, the switch would pass them on unfinished.
      ...(datapath === 'netdev' ? ['other-config:userspace-tso-enable=true'] : []),
    ]
    await runTool(['ovs-vsctl', switchDb, '--no-wait', 'set', 'open_vswitch', '.', ...words], '')
    await runTool(['ovn-nbctl', `--db=unix:${northbound.socket}`, 'init'], '')
    await runTool(['ovn-sbctl', `--db=unix:${southbound.socket}`, 'init'], '')
  }

  /** @returns whether it had to be started */
  async #ensureDaemon({ name, argv }: Daemon): Promise<boolean> {
    if (this.#identityOf(name) !== null) return false
    const { file, directory } = this.layout
    rmSync(file('pid', name), { force: true })
    await runTool(
      [
        // Sockets whose place is no option: of the switch's bridges, and those that ovs-appctl asks.
        ...(['env', `OVS_RUNDIR=${directory}`, `OVN_RUNDIR=${directory}`] as const),
        ...['nsenter', `--net=/run/netns/${this.#options.namespace}`, ...argv],
        ...['--detach', '--no-chdir', `--pidfile=${file('pid', name)}`, `--log-file=${file('log', name)}`],
      ],
      '',
    )
    return true
  }

  #identityOf(name: string): ProcessIdentity | null {
    const pid = Number(readOrNull(this.layout.file('pid', name)))
    if (!Number.isInteger(pid) || pid <= 0) return null
    // Another process may have that number by now.
    const isOurs = readOrNull(`/proc/${pid}/cmdline`)?.includes(join(this.layout.directory, '')) === true
    return isOurs ? identityOf(pid) : null
  }
}
