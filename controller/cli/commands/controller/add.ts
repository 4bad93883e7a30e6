import { existsSync, readFileSync, statSync } from 'node:fs'
import { isIPv4 } from 'node:net'
import { resolve } from 'node:path'
import { Argument, InvalidArgumentError, Option } from 'commander'
import { configurationFile, readConfiguration } from '../../../config/load.js'
import { settings } from '../../../config/settings.js'
import { hostAddress, hostName } from '../../../hosts/options.js'
import { HostNameTaken, reserveHost } from '../../../hosts/registry.js'
import type { Command } from '../../command.js'
import { settingsForHost } from '../../first-start/host-settings.js'
import { writeOutput } from '../../host/output-file.js'
import { OperatorError } from '../../operator-error.js'
import { filesOf, usesPrivateCluster, whyNotFromElsewhere } from '../../state-directory/database-urls.js'
import { bundledFiles, type HostBundle, packBundle } from '../../state-directory/host-bundle.js'
import { print } from '../../terminal.js'
import { databaseUrl, type Instance } from '../../wiring/instance.js'
import { usesOvn } from '../../wiring/network/ovn.js'
import { requireHostId, VERSION } from '../../wiring/this-host.js'
import { withHosts } from './with-hosts.js'

/** The kernel sends copies of heartbeats there, over IPv4: without them, no host learns that another one is gone. */
const sharedAddress = hostAddress.refine(isIPv4, {
  error: 'an IPv4 address: hosts hear each other’s amphorae over IPv4',
})

export const command: Command = {
  arguments: [
    new Argument('<name>', 'name of the new controller host').argParser(checkedBy(hostName)),
    new Argument('<address>', 'IPv4 address at which the other hosts reach it').argParser(checkedBy(sharedAddress)),
  ],
  options: [new Option('--output <file>', 'path of the bundle (default: krater-NAME.tar in the current directory)')],
  run: (directory, { name, address, output }: { name: string; address: string; output?: string }) =>
    withHosts(directory, async (instance, database) => {
      requireSharing(instance)
      const file = resolve(output ?? `krater-${name}.tar`)
      if (existsSync(file) && !statSync(file).isFile())
        throw new OperatorError(`${file} is no plain file. Name one that the bundle is written to.`)
      const id = await reserveHost(database, { name, address }).catch(error => {
        if (!(error instanceof HostNameTaken)) throw error
        throw new OperatorError(
          `There is a controller host ${name} already. \`krater controller list\` lists all; \`krater controller remove ${name}\` removes it.`,
        )
      })
      await writeOutput(file, path => writeBundle(path, instance, { id, name, address }))
      for (const line of whatToDo(instance, { name, file })) print(line)
    }),
}

function checkedBy(schema: typeof hostName | typeof sharedAddress): (text: string) => string {
  return text => {
    const parsed = schema.safeParse(text)
    if (parsed.success) return parsed.data
    throw new InvalidArgumentError(`It must be ${parsed.error.issues[0]?.message}.`)
  }
}

/** @throws OperatorError unless other hosts can share this one's database, and reach this one */
function requireSharing(instance: Instance): void {
  const { directory, config } = instance
  const file = configurationFile(directory)
  requireHostId(directory)
  if (usesOvn(instance))
    throw new OperatorError(
      `network.driver is ovn: Krater's rows in OVN belong to one controller host. Several hosts need another network driver.`,
    )
  if (usesPrivateCluster(config, directory)) {
    throw new OperatorError(
      `This host has a PostgreSQL of its own, which no other machine reaches. Several hosts need a server that all of them reach: dump the databases of this one and restore them there, set its URL as database.url in ${file} instead of the URLs there (postgres://ROLE:PASSWORD@SERVER/DATABASE?sslmode=verify-full&sslrootcert=FILE), and start Krater again. docs/several-hosts.md shows each step.`,
    )
  }
  const problem = whyNotFromElsewhere(databaseUrl(instance, 'load_balancer'))
  if (problem !== null) throw new OperatorError(problem)
  if (config.host.address === undefined) {
    throw new OperatorError(
      'Other hosts must know where to reach this one. Run: krater settings --restart host.address=ADDRESS',
    )
  }
  if (!isIPv4(config.host.address)) {
    throw new OperatorError(
      `Hosts hear each other's amphorae over IPv4, and the address of this one is ${config.host.address}. Run: krater settings --restart host.address=ADDRESS`,
    )
  }
}

async function writeBundle(
  path: string,
  { directory, config }: Instance,
  host: { id: string; name: string; address: string },
): Promise<void> {
  const places = [...bundledFiles(config, directory)].filter(([, place]) => existsSync(place))
  const databaseFiles = [...new Set(filesOf(config.database.load_balancer ?? ''))]
  const named = databaseFiles.map((place, at): [string, string] => [`database-${at + 1}`, place])
  const bundle: HostBundle = {
    manifest: { format: 1, version: VERSION, ...host, databaseFiles: Object.fromEntries(named) },
    settings: settingsForHost(readConfiguration(configurationFile(directory)), config, host),
    files: new Map([...places, ...named].map(([name, place]) => [name, readFileSync(place)])),
  }
  await packBundle(path, bundle, `${directory}/run`)
}

function whatToDo({ config }: Instance, { name, file }: { name: string; file: string }): string[] {
  const secrets = settings.filter(({ secret, variable }) => secret && (process.env[variable] ?? '') !== '')
  const outside = secrets.filter(({ path }) => path[0] !== 'database').map(({ variable }) => variable)
  const { certificate_file, key_file, ca_file } = config.api.tls
  const files = [certificate_file, key_file, ca_file, config.load_balancer.key_manager_ca_file].filter(
    path => path !== undefined,
  )
  return [
    `${file} holds all keys of this installation. Copy it to ${name}, over a way that nobody else reads (scp), and run there:`,
    `  krater up --join ${file.split('/').at(-1)}`,
    'Then remove both copies.',
    ...(outside.length === 0
      ? []
      : [`It lacks what only the environment has here; set it there too: ${outside.join(', ')}`]),
    ...(files.length === 0 ? [] : [`It lacks these files, which ${name} needs at the same paths: ${files.join(', ')}`]),
  ]
}
