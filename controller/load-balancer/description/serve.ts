import type { Context } from 'koa'
import { descriptionPage, PAGE_POLICY } from '../../api/description/page.js'
import { openApiDocument } from './document.js'

/** The paths, in the form of canonicalPath, under which the description is served without a token. */
export const DESCRIPTION_PATHS = { document: '/openapi', page: '/docs' } as const

/** Serves the description, which is made when it is asked for the first time. */
export function createDescription(): { document: (ctx: Context) => void; page: (ctx: Context) => void } {
  let made: { document: string; page: string } | null = null
  const texts = () => {
    if (made === null) {
      const document = openApiDocument()
      made = { document: JSON.stringify(document), page: descriptionPage(document) }
    }
    return made
  }
  return {
    document: ctx => {
      ctx.body = texts().document
      ctx.type = 'application/json'
    },
    page: ctx => {
      ctx.body = texts().page
      ctx.type = 'text/html; charset=utf-8'
      ctx.set('Content-Security-Policy', PAGE_POLICY)
      ctx.set('X-Content-Type-Options', 'nosniff')
      ctx.set('Referrer-Policy', 'no-referrer')
    },
  }
}
