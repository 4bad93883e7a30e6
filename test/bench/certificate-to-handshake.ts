import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { connect } from 'node:tls'
import { promisify } from 'node:util'
import type { ApiClient } from '../../controller/cli/api-client.js'
import { awaitCertificate, placeOrder } from '../../controller/cli/certificates/order.js'
import { startInstance } from './instance.js'
import { percentile } from './measure.js'

const run = promisify(execFile)

const ROUNDS = Number(process.env.BENCH_REPETITIONS ?? 40)
const NAME = 'www.example.com'
/** Between changes, so that one does not wait for the end of another. */
const PAUSE_MS = 300
const LIMIT_MS = 10_000

type Listener = { id: string; protocol: string; provisioning_status: string }
type Balancer = { vip_address: string }

/**
 * The time from a PUT of a listener's certificate until the first handshake with it, over a real amphora.
 * @returns a table, as Markdown
 */
export async function benchCertificateToHandshake(root: string): Promise<string> {
  const instance = await startInstance(root, {}, 28_400)
  const { api, directory } = instance
  try {
    await instance.krater('demo', '--tls')
    const { loadbalancers } = (await get(api, 'loadbalancers')) as { loadbalancers: Balancer[] }
    const { listeners } = (await get(api, 'listeners')) as { listeners: Listener[] }
    const listener = listeners.find(({ protocol }) => protocol === 'TERMINATED_HTTPS')
    const vip = loadbalancers[0]?.vip_address
    if (listener === undefined || vip === undefined) throw new Error('The demonstration has no HTTPS listener.')
    const kinds = [
      { name: 'a certificate of an order', refs: [await order(api), await order(api)] },
      { name: 'a PKCS#12 bundle', refs: [await bundle(api, directory, 'one'), await bundle(api, directory, 'two')] },
    ]
    const rows: string[] = []
    for (const { name, refs } of kinds) {
      const answered: number[] = []
      const served: number[] = []
      for (let round = -1; round < ROUNDS; round++) {
        const before = await shownBy(vip)
        const started = performance.now()
        const body = { listener: { default_tls_container_ref: refs[(round + 2) % refs.length] } }
        await api.request('load-balancer', 'PUT', `/v2/lbaas/listeners/${listener.id}`, body)
        const took = performance.now() - started
        while ((await shownBy(vip)) === before) {
          if (performance.now() - started > LIMIT_MS) throw new Error(`${name} is not served.`)
        }
        // The first one only warms up.
        if (round >= 0) {
          answered.push(took)
          served.push(performance.now() - started)
        }
        await delay(PAUSE_MS)
      }
      rows.push(`| ${name} | ${cells(answered)} | ${cells(served)} |`)
    }
    return [
      `One real amphora, ${ROUNDS} changes of each kind, ${PAUSE_MS} ms apart, milliseconds from the request.`,
      '',
      '| the listener gets | the API answers: median | 99 % | the first handshake: median | 99 % |',
      '| --- | ---: | ---: | ---: | ---: |',
      ...rows,
    ].join('\n')
  } finally {
    await instance.remove()
  }
}

const get = (api: ApiClient, collection: string) => api.request('load-balancer', 'GET', `/v2/lbaas/${collection}`)

async function order(api: ApiClient): Promise<string> {
  const path = await placeOrder(api, { names: [NAME], name: 'bench', ca: null })
  return awaitCertificate(api, path, 60, () => undefined)
}

/** Stores a self-signed certificate with its key. @returns its reference */
async function bundle(api: ApiClient, directory: string, name: string): Promise<string> {
  const [key, certificate, file] = ['key', 'crt', 'p12'].map(kind => join(directory, 'run', `bench-${name}.${kind}`))
  const words = ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '9']
  await run('openssl', [...words, '-subj', `/CN=${NAME}`, '-keyout', `${key}`, '-out', `${certificate}`])
  const inputs = ['-inkey', `${key}`, '-in', `${certificate}`, '-passout', 'pass:']
  await run('openssl', ['pkcs12', '-export', ...inputs, '-out', `${file}`])
  const stored = (await api.request('key-manager', 'POST', '/v1/secrets', {
    payload: readFileSync(`${file}`).toString('base64'),
    payload_content_type: 'application/octet-stream',
    payload_content_encoding: 'base64',
  })) as { secret_ref: string }
  return stored.secret_ref
}

/** The serial number of the certificate that a client gets to see. */
function shownBy(host: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host, port: 443, servername: NAME, rejectUnauthorized: false }, () => {
      resolve(socket.getPeerCertificate().serialNumber)
      socket.destroy()
    })
    socket.setTimeout(5_000, () => socket.destroy(new Error('The VIP does not answer')))
    socket.once('error', reject)
  })
}

function cells(values: readonly number[]): string {
  const sorted = values.toSorted((one, other) => one - other)
  return `${percentile(sorted, 0.5).toFixed(0)} | ${percentile(sorted, 0.99).toFixed(0)}`
}
