import { type Answer, jsonAnswer } from '../../api/answer.js'
import type { Call } from '../../api/call.js'
import manifest from '../../package.json' with { type: 'json' }
import { MAX_MINOR, openRoute, route } from './dialect.js'

const DOCUMENTATION = 'https://docs.openstack.org/barbican/latest/api/'

/** The entry of v1 in both version documents. @param base URL of the root, without a trailing slash */
function entry(base: string, minor: number) {
  const links = [
    { rel: 'self', href: `${base}/v1/` },
    { rel: 'describedby', type: 'text/html', href: DOCUMENTATION },
  ]
  if (minor === 0) {
    const types = [{ base: 'application/json', type: 'application/vnd.openstack.key-manager-v1+json' }]
    return { id: 'v1', status: 'stable', links, 'media-types': types }
  }
  return { id: 'v1', status: 'CURRENT', min_version: '1.0', max_version: `1.${MAX_MINOR}`, links }
}

/** The document at the root, with status 300. */
export function rootDocument(base: string, minor: number): unknown {
  const v1 = entry(base, minor)
  return { versions: minor === 0 ? { values: [v1] } : [v1] }
}

/** The document at /v1. */
export const versionDocument = (base: string, minor: number): unknown => ({ version: entry(base, minor) })

/** The answer to `/?build`. */
export const buildDocument = (): unknown => ({ build: manifest.version })

const base = { method: 'GET', path: '/', group: 'versions' } as const

export const versionRoutes = [
  openRoute({
    ...base,
    summary: 'Show the versions of this API',
    status: 300,
    answer: { type: 'object' },
    handle: async (_, call) => rootAnswer(call),
  }),
  route({
    ...base,
    path: '/v1',
    right: 'version read',
    summary: 'Show this version of the API',
    status: 200,
    answer: { type: 'object' },
    handle: async (_, { base, minor }) => jsonAnswer(200, versionDocument(base, minor)),
  }),
]

function rootAnswer(call: Call<null>): Answer {
  if (call.query.has('build')) return jsonAnswer(200, buildDocument())
  if (call.accepts('application/json', 'application/json-home') !== 'application/json-home') {
    return jsonAnswer(300, rootDocument(call.base, call.minor))
  }
  const { href: home } = new URL(`${call.base}/v1/`)
  const type = call.accepts('html') === 'html' ? 'text/html' : 'text/plain'
  return {
    status: 302,
    bytes: Buffer.from(`Redirecting to ${home}.`),
    headers: { Location: home, 'Content-Type': `${type}; charset=utf-8` },
  }
}
