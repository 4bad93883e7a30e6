import { Validator } from '@seriousme/openapi-schema-validator'
import type { Test } from 'tap'

type Document = {
  info: { title: string }
  paths: Record<string, Record<string, { operationId?: string }>>
  components: Record<string, Record<string, object> | undefined>
}

/**
 * Checks an API's public description: a valid OpenAPI 3.1 document with every route, and a page.
 * @param served all routes of the API except those of the description
 */
export async function checkDescription(
  t: Test,
  served: readonly { method: string; path: string }[],
  url: string,
): Promise<void> {
  const answer = await fetch(`${url}/openapi.json`)
  t.equal(answer.status, 200, 'the document needs no token')
  const document = (await answer.json()) as Document
  const validator = new Validator()
  const { valid, errors } = await validator.validate(structuredClone(document))
  t.same(errors, undefined)
  t.equal(valid, true)
  t.equal(validator.version, '3.1')

  const routes = served.map(({ method, path }) => `${method} ${path.replace(/:(\w+)/g, '{$1}')}`)
  const described = Object.entries(document.paths).flatMap(([path, item]) =>
    Object.keys(item)
      .filter(method => method !== 'parameters')
      .map(method => `${method.toUpperCase()} ${path}`),
  )
  t.same(described.sort(), [...routes, 'GET /docs', 'GET /openapi.json'].sort(), 'every route is described')
  const ids = Object.values(document.paths).flatMap(item =>
    Object.values(item).flatMap(({ operationId }) => operationId ?? []),
  )
  t.equal(new Set(ids).size, ids.length, 'operation ids are unique')
  const references = JSON.stringify(document).matchAll(/"\$ref":"#\/components\/(\w+)\/([^"]+)"/g)
  for (const [reference, kind = '', name = ''] of references) {
    if (document.components[kind]?.[name] === undefined) t.fail(`${reference} refers to nothing`)
  }

  const page = await fetch(`${url}/docs`)
  t.equal(page.status, 200, 'the page needs no token either')
  t.match(page.headers.get('Content-Type'), 'text/html')
  t.match(page.headers.get('Content-Security-Policy'), "default-src 'none'")
  t.match(await page.text(), document.info.title)
}
