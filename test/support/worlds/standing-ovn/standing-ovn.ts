import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Test } from 'tap'
import { formatOvsdbAddress } from '../../../../controller/ovsdb/address.js'
import type { OvsdbTls } from '../../../../controller/ovsdb/connection.js'
import { eventually } from '../../eventually.js'
import { makePair, type Pair } from '../../inputs/certificates.js'
import { ownPorts } from '../../ports.js'
import { leaderOf, type OvsdbServer, type ServerTls, serverCluster, tlsWords } from '../../services/ovsdb.js'
import { takeChassisTurn } from '../turns.js'
import { type Chassis, startChassis } from './chassis.js'
import { type Daemon, daemon, run } from './daemon.js'

export type DatabaseCluster = {
  servers: OvsdbServer[]
  /** Its addresses, as settings name them. */
  addresses: string
  /** Waits until there is one. */
  leader: () => Promise<OvsdbServer>
  /** Kills the leader. @returns it */
  killLeader: () => Promise<OvsdbServer>
}

/** An OVN that its operator set up: clusters of three over TLS, northd, and this host as a chassis. */
export type StandingOvn = {
  directory: string
  northbound: DatabaseCluster
  southbound: DatabaseCluster
  northd: Daemon
  chassis: Chassis
  /** Another chassis, in a network namespace that is there. */
  addChassis: (name: string, namespace: string, address: string) => Promise<Chassis>
  /** A pair by an authority that this OVN does not know; files. */
  strangers: ServerTls
  /** Krater's certificate for it: files, and what is in them. */
  files: ServerTls
  tls: OvsdbTls
  /** Settings of a Krater that uses it. */
  settings: Readonly<Record<string, string>>
  nb: (...words: string[]) => Promise<string>
  sb: (...words: string[]) => Promise<string>
  /** All rows of the northbound database that bear no mark of a Krater, without what its daemons count. */
  foreignRows: () => Promise<string>
  /** How many rows bear a mark of a Krater. */
  kraterRows: () => Promise<number>
}

const DATABASES = {
  northbound: { name: 'OVN_Northbound', schema: '/usr/share/ovn/ovn-nb.ovsschema' },
  southbound: { name: 'OVN_Southbound', schema: '/usr/share/ovn/ovn-sb.ovsschema' },
} as const

/** Starts it, with rows of its own. It ends with the test. @param address of the chassis, for tunnels */
export async function startStandingOvn(t: Test, { address = '127.0.0.1' } = {}): Promise<StandingOvn> {
  await takeChassisTurn(t)
  const directory = mkdtempSync(join(tmpdir(), 'so-'))
  t.teardown(() => rmSync(directory, { recursive: true, force: true }))
  const files = (name: string, ca: Pair, pair: Pair): ServerTls => {
    const paths = {
      certificate: join(directory, `${name}.pem`),
      key: join(directory, `${name}.key`),
      ca: join(directory, `${name}-ca.pem`),
    }
    writeFileSync(paths.certificate, pair.certificate)
    writeFileSync(paths.key, pair.privateKey, { mode: 0o600 })
    writeFileSync(paths.ca, ca.certificate)
    return paths
  }
  const authority = makePair({ subject: '/CN=OVN authority' })
  const own = files('ovn', authority, makePair({ subject: '/CN=ovn', issuer: authority }))
  const kraters = makePair({ subject: '/CN=krater', issuer: authority })
  const kratersFiles = files('krater', authority, kraters)
  const others = makePair({ subject: '/CN=another authority' })
  const strangers = files('stranger', others, makePair({ subject: '/CN=stranger', issuer: others }))
  const tls = tlsWords(own)

  const northbound = await startCluster(t, join(directory, 'nb'), DATABASES.northbound, own)
  const southbound = await startCluster(t, join(directory, 'sb'), DATABASES.southbound, own)
  const asking =
    (program: string, database: string) =>
    async (...words: string[]) =>
      (await run(program, [`--db=${database}`, '--timeout=20', ...tls, ...words])).stdout
  const nb = asking('ovn-nbctl', northbound.addresses)
  const sb = asking('ovn-sbctl', southbound.addresses)
  await Promise.all([nb('init'), sb('init')])
  const northd = daemon(t, join(directory, 'northd'), [
    'ovn-northd',
    `--ovnnb-db=${northbound.addresses}`,
    `--ovnsb-db=${southbound.addresses}`,
    ...tls,
  ])
  await northd.start()
  const addChassis = async (name: string, namespace: string | null, at: string): Promise<Chassis> => {
    const place = join(directory, name)
    mkdirSync(place)
    const remote = southbound.addresses
    const added = await startChassis(t, { directory: place, name, southbound: remote, tls, address: at, namespace })
    await eventually(
      `${name} is a chassis`,
      async () => (await sb('--bare', '--columns=name', 'find', 'chassis', `name=${name}`)).trim() === name,
      20_000,
    )
    return added
  }
  const chassis = await addChassis('one', null, address)
  // What its operator has there.
  await nb(
    ...['ls-add', 'theirs', '--', 'lsp-add', 'theirs', 'their-port', '--', 'lr-add', 'their-router'],
    ...['--', 'lb-add', 'their-lb', '192.0.2.1:80', '192.0.2.2:80', '--', 'ls-lb-add', 'theirs', 'their-lb'],
    ...['--', 'acl-add', 'theirs', 'to-lport', '1', 'ip4', 'allow'],
  )
  await nb('--wait=hv', 'sync')

  const dump = async (): Promise<Record<string, Record<string, unknown>[]>> => {
    const text = await run(
      'ovsdb-client',
      ['-f', 'json', ...tls, 'dump', northbound.addresses, DATABASES.northbound.name],
      { maxBuffer: 64 * 1024 * 1024 },
    )
    const tables = text.stdout
      .split('\n')
      .filter(Boolean)
      .map(line => JSON.parse(line) as { caption: string; headings: string[]; data: unknown[][] })
    return Object.fromEntries(
      tables.map(({ caption, headings, data }) => [
        caption,
        data.map(values => Object.fromEntries(headings.map((heading, index) => [heading, values[index]]))),
      ]),
    )
  }
  const isKraters = (row: Record<string, unknown>) => JSON.stringify(row['external_ids'] ?? '').includes('krater:')
  return {
    ...{ directory, northbound, southbound, northd, chassis, addChassis, strangers, nb, sb },
    files: kratersFiles,
    tls: { ca: authority.certificate, certificate: kraters.certificate, key: kraters.privateKey },
    settings: {
      KRATER_NETWORK_DRIVER: 'ovn',
      KRATER_OVN_NORTHBOUND: northbound.addresses,
      KRATER_OVN_SOUTHBOUND: southbound.addresses,
      KRATER_OVN_SWITCH: `unix:${chassis.socket}`,
      KRATER_OVN_CERTIFICATE_FILE: kratersFiles.certificate,
      KRATER_OVN_KEY_FILE: kratersFiles.key,
      KRATER_OVN_CA_FILE: kratersFiles.ca,
    },
    foreignRows: async () => {
      const tables = Object.entries(await dump()).filter(([table]) => !/^(NB_Global|Connection|SSL) table$/.test(table))
      return JSON.stringify(
        tables.map(([table, rows]) => [
          table,
          rows
            .filter(row => !isKraters(row))
            .map(row => JSON.stringify(row))
            .sort(),
        ]),
      )
    },
    kraterRows: async () =>
      Object.values(await dump())
        .flat()
        .filter(isKraters).length,
  }
}

async function startCluster(
  t: Test,
  directory: string,
  { name, schema }: (typeof DATABASES)[keyof typeof DATABASES],
  tls: ServerTls,
): Promise<DatabaseCluster> {
  mkdirSync(directory)
  const servers = await serverCluster(directory, await ownPorts(6), { name, schema, tls })
  t.teardown(() => Promise.all(servers.map(server => server.end('SIGKILL'))))
  const leader = () => leaderOf(servers, name)
  return {
    ...{ servers, leader },
    addresses: servers.map(({ address }) => formatOvsdbAddress(address)).join(),
    killLeader: async () => {
      const killed = await leader()
      await killed.end('SIGKILL')
      return killed
    },
  }
}
