import { gzipSync } from 'node:zlib'
import type { Answer } from '../answer.js'
import type { Call } from '../call.js'
import type { OpenRoute } from '../route.js'
import type { OpenApi } from '../schema.js'
import { descriptionPage, PAGE_POLICY } from './page.js'

const DOCUMENT_HEADERS = { 'Content-Type': 'application/json; charset=utf-8' }

const PAGE_HEADERS = {
  'Content-Type': 'text/html; charset=utf-8',
  'Content-Security-Policy': PAGE_POLICY,
  'X-Content-Type-Options': 'nosniff',
  'Referrer-Policy': 'no-referrer',
}

/** The path of every API's HTML description. */
export const PAGE_PATH = '/docs'

/** The routes of the description, which is generated at the first request. */
export function descriptionRoutes<Service>({
  path = '/openapi.json',
  make,
}: {
  path?: string
  make: () => OpenApi
}): OpenRoute<Service>[] {
  let generated: { document: Text; page: Text } | null = null
  const texts = () => {
    if (generated === null) {
      const document = make()
      generated = { document: textOf(JSON.stringify(document)), page: textOf(descriptionPage(document)) }
    }
    return generated
  }
  const common = { open: true, method: 'GET', group: 'service', status: 200 } as const
  return [
    {
      ...common,
      path,
      summary: 'This description',
      answer: { type: 'object' },
      handle: async (_service, call) => answerWith(call, texts().document, DOCUMENT_HEADERS),
    },
    {
      ...common,
      path: PAGE_PATH,
      summary: 'This description as a page',
      answer: { type: 'string' },
      answerType: 'text/html',
      handle: async (_service, call) => answerWith(call, texts().page, PAGE_HEADERS),
    },
  ]
}

/** A text that never changes, and its compressed form. */
type Text = { plain: Buffer; compressed: Buffer }

const textOf = (text: string): Text => ({ plain: Buffer.from(text), compressed: gzipSync(text, { level: 9 }) })

function answerWith(call: Call<null>, { plain, compressed }: Text, headers: Readonly<Record<string, string>>): Answer {
  if (!call.acceptsGzip()) return { status: 200, bytes: plain, headers }
  return { status: 200, bytes: compressed, headers: { ...headers, 'Content-Encoding': 'gzip' } }
}
