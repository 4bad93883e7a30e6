import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chownSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import type { Test } from 'tap'
import { ownPorts } from '../ports.js'

export type RabbitMq = {
  /** amqp:// with the login. */
  url: string
  /** The same over TLS. */
  tlsUrl: string
  port: number
  password: string
  /** PEM file of the authority that signed its certificate. */
  caFile: string
  /** kill -9; what was not on disk is lost. */
  kill: () => Promise<void>
  /** Starts it again, on the same ports and data. */
  start: () => Promise<void>
}

const SERVER = '/usr/lib/rabbitmq/bin/rabbitmq-server'
const STARTED = 'Server startup complete'

/** Debian's RabbitMQ with its own directories, ports and port mapper, on loopback only; it ends with the test. */
export async function startRabbitMq(t: Test): Promise<RabbitMq> {
  const account = { uid: idOf('-u'), gid: idOf('-g') }
  const directory = mkdtempSync(join(tmpdir(), 'krater-rabbitmq-'))
  const [port = 0, tlsPort = 0, nodePort = 0, mapperPort = 0] = await ownPorts(4)
  const password = 'only-for-the-tests'
  const file = (name: string) => join(directory, name)
  makeCertificate(directory)
  for (const name of ['mnesia', 'log', 'home']) mkdirSync(file(name))
  writeFileSync(file('env.conf'), '')
  writeFileSync(file('enabled_plugins'), '[].\n')
  writeFileSync(
    file('rabbitmq.conf'),
    [
      `listeners.tcp.1 = 127.0.0.1:${port}`,
      `listeners.ssl.1 = 127.0.0.1:${tlsPort}`,
      `ssl_options.cacertfile = ${file('certificate.pem')}`,
      `ssl_options.certfile = ${file('certificate.pem')}`,
      `ssl_options.keyfile = ${file('key.pem')}`,
      'ssl_options.verify = verify_none',
      'default_user = key-manager',
      `default_pass = ${password}`,
      'log.console = true',
      'log.file = false',
      'disk_free_limit.absolute = 10MB',
    ].join('\n'),
  )
  for (const name of ['.', 'mnesia', 'log', 'home', 'enabled_plugins', 'key.pem']) {
    chownSync(file(name), account.uid, account.gid)
  }
  const environment = {
    PATH: process.env.PATH,
    HOME: file('home'),
    LC_ALL: 'C.UTF-8',
    ERL_EPMD_PORT: String(mapperPort),
    ERL_EPMD_ADDRESS: '127.0.0.1',
    RABBITMQ_BASE: directory,
    RABBITMQ_MNESIA_BASE: file('mnesia'),
    RABBITMQ_LOG_BASE: file('log'),
    RABBITMQ_NODENAME: `krater-${port}@localhost`,
    RABBITMQ_NODE_PORT: String(port),
    RABBITMQ_NODE_IP_ADDRESS: '127.0.0.1',
    RABBITMQ_DIST_PORT: String(nodePort),
    RABBITMQ_CONF_ENV_FILE: file('env.conf'),
    RABBITMQ_CONFIG_FILE: file('rabbitmq'),
    RABBITMQ_ENABLED_PLUGINS_FILE: file('enabled_plugins'),
    RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS: '+S 1:1 +A 4 +sbwt none -kernel inet_dist_use_interface {127,0,0,1}',
    // The script then becomes the server, so that a signal reaches it.
    RUNNING_UNDER_SYSTEMD: 'true',
  }
  const options = { cwd: directory, env: environment, ...account }
  // Otherwise the server would start one that outlives it.
  const mapper = spawn('epmd', ['-port', String(mapperPort), '-address', '127.0.0.1'], { ...options, stdio: 'ignore' })
  const kills: (() => Promise<void>)[] = [endOf(mapper)]
  t.teardown(async () => {
    for (const kill of kills.reverse()) await kill()
    rmSync(directory, { recursive: true, force: true })
  })

  let kill: () => Promise<void> = async () => undefined
  const start = async () => {
    const server = spawn(SERVER, [], { ...options, stdio: ['ignore', 'pipe', 'pipe'] })
    kill = endOf(server)
    kills.push(kill)
    const words: string[] = []
    for await (const line of createInterface({ input: server.stdout, signal: AbortSignal.timeout(60_000) })) {
      words.push(line)
      if (!line.includes(STARTED)) continue
      server.stdout.resume()
      server.stderr.resume()
      return
    }
    throw new Error(`RabbitMQ did not start:\n${words.slice(-20).join('\n')}`)
  }
  await start()
  const login = `key-manager:${password}`
  return {
    url: `amqp://${login}@127.0.0.1:${port}/`,
    tlsUrl: `amqps://${login}@localhost:${tlsPort}/`,
    port,
    password,
    caFile: file('certificate.pem'),
    kill: () => kill(),
    start,
  }
}

function idOf(option: '-u' | '-g'): number {
  return Number(execFileSync('id', [option, 'rabbitmq'], { encoding: 'utf8' }))
}

function makeCertificate(directory: string): void {
  const args = ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2']
  const names = ['-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost']
  const files = ['-keyout', join(directory, 'key.pem'), '-out', join(directory, 'certificate.pem')]
  execFileSync('openssl', [...args, ...names, ...files], { stdio: 'ignore', timeout: 20_000 })
}

/** @returns a function that kills the process and resolves when it has ended, even the second time */
function endOf(child: ReturnType<typeof spawn>): () => Promise<void> {
  const ended = once(child, 'exit')
  return async () => {
    child.kill('SIGKILL')
    await ended
  }
}
