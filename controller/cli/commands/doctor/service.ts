import { type Finding, fault, note, ok } from '../../../checks/finding.js'
import { createExchange } from '../../../http/exchange.js'
import { networkDriver } from '../../../network/drivers.js'
import { listenersOf } from '../../host/checks.js'
import { logFile } from '../../host/log-files.js'
import { takenPorts } from '../../host/ports.js'
import type { ProcessName, RunRecord } from '../../state-directory/run-record.js'
import type { Instance } from '../../wiring/instance.js'
import { listeningUrl } from '../../wiring/service-urls.js'

/** The processes that must run on some machine, and their commands. */
const COMMANDS: Readonly<Partial<Record<ProcessName, string>>> = {
  worker: 'worker',
  'health-manager': 'health-manager',
  'network-worker': 'network worker',
  'key-manager-worker': 'key-manager worker',
  'acme-validator': 'key-manager acme-validator',
}

/**
 * Checks which processes are running and whether the APIs answer; if nothing is running, whether the ports are
 * free.
 */
export async function checkService({ config, directory }: Instance, running: readonly RunRecord[]): Promise<Finding[]> {
  if (running.length === 0) {
    const taken = await takenPorts(listenersOf(config, null))
    return [
      note('processes', 'none is running: `krater up` starts them'),
      ...taken.map(({ what, remedy }) => fault('ports', what, remedy)),
      ...(taken.length === 0 ? [ok('ports', 'all are free')] : []),
    ]
  }
  const processes = running.map(({ name, identity }) => `${name} ${identity.pid}`).join(', ')
  const urlOf = (address: { host: string; port: number }) => listeningUrl(config, address)
  const answering = (service: string, url: string) => checkApi(service, url, directory)
  const answers = await Promise.all([
    ...(config.identity.external_url === undefined ? [answering('identity', `${urlOf(config.identity)}/v3`)] : []),
    answering('load balancer', urlOf(config.load_balancer)),
    answering('network', urlOf(config.network)),
    answering('key manager', urlOf(config.key_manager)),
  ])
  const isNeeded = (name: string) => {
    if (name === 'network-worker') return networkDriver(config.network.driver).onHost
    return name !== 'acme-validator' || config.key_manager.acme_server.enable
  }
  const missing = Object.entries(COMMANDS).filter(
    ([name]) => isNeeded(name) && !running.some(record => record.name === name),
  )
  return [
    ok('processes', processes),
    ...missing.map(([name, command]) =>
      fault(
        'processes',
        `${name} is not running on this machine`,
        `run \`krater ${command}\`, unless it runs elsewhere`,
      ),
    ),
    ...answers,
  ]
}

const ANSWER_SECONDS = 5
/** A list of versions is short; a catalogue is not asked for. */
const MAX_ANSWER_BYTES = 1024 * 1024

async function checkApi(service: string, url: string, directory: string): Promise<Finding> {
  const about = `${service} API`
  const log = logFile(directory, `${service.replace(' ', '-')}-api`)
  const advice = `tail ${log}; to start it again: krater down && krater up --detach`
  // Nothing secret is sent, and another check says what is wrong with a certificate.
  const limits = { connectTimeoutSeconds: ANSWER_SECONDS, maxConnections: 1 }
  const exchange = createExchange({ url, security: { insecure: true }, ...limits })
  try {
    const request = { method: 'GET', path: '', headers: {}, maxAnswerBytes: MAX_ANSWER_BYTES }
    const { status } = await exchange.send(request, AbortSignal.timeout(ANSWER_SECONDS * 1000))
    return status < 500 ? ok(about, url) : fault(about, `${url} answers ${status}`, advice)
  } catch {
    return fault(about, `${url} does not answer`, advice)
  } finally {
    exchange.close()
  }
}
