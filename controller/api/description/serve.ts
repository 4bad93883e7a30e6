import type { OpenRoute } from '../route.js'
import type { OpenApi } from '../schema.js'
import { descriptionPage, PAGE_POLICY } from './page.js'

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
  let generated: { document: string; page: Buffer } | null = null
  const texts = () => {
    if (generated === null) {
      const document = make()
      generated = { document: JSON.stringify(document), page: Buffer.from(descriptionPage(document)) }
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
      handle: async () => ({ status: 200, json: texts().document }),
    },
    {
      ...common,
      path: PAGE_PATH,
      summary: 'This description as a page',
      answer: { type: 'string' },
      answerType: 'text/html',
      handle: async () => ({ status: 200, bytes: texts().page, headers: PAGE_HEADERS }),
    },
  ]
}
