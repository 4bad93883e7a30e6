import type { CodeSample } from '../description/examples.js'
import type { Schema } from '../schema.js'
import { anchorOf, code, escapeHtml } from './html.js'
import type { SchemaWriter } from './schema.js'

export type Parameter = { name: string; in: string; description: string; required?: boolean; schema: Schema }
type Content = Readonly<Record<string, { schema: Schema }>>

export type Operation = {
  operationId: string
  tags: string[]
  summary: string
  description?: string
  parameters?: Schema[]
  requestBody?: { content: Content }
  responses: Record<string, Schema>
  'x-codeSamples'?: CodeSample[]
}

export type Located = { method: string; path: string; operation: Operation; shared: readonly Schema[] }

/** An operation, folded. Its anchor is the operation's id. */
export function operationHtml({ method, path, operation, shared }: Located, writer: SchemaWriter): string {
  const { operationId, summary, description = '', requestBody } = operation
  const body = requestBody === undefined ? '' : `<h3>Body</h3>${bodyHtml(requestBody.content, writer)}`
  return `<details class="op ${method}" id="${anchorOf(operationId)}"><summary><b>${method.toUpperCase()}</b>${pathHtml(path)}<span>${escapeHtml(summary)}</span></summary>
<div><p>${escapeHtml(description)}</p>${examplesHtml(operation['x-codeSamples'] ?? [])}
${parametersHtml([...shared, ...(operation.parameters ?? [])], writer)}${body}${answersHtml(operation, writer)}</div></details>`
}

/** A path that narrow windows break before its slashes. */
const pathHtml = (path: string): string => code(path).replaceAll(/(?<=\w|\})\//g, '<wbr>/')

const examplesHtml = (samples: readonly CodeSample[]): string =>
  samples.map(({ label, source }) => `<h3>With ${label}</h3><pre>${escapeHtml(source)}</pre>`).join('')

const bodyHtml = (content: Content, writer: SchemaWriter): string => {
  const { schema } = content['application/json'] ?? {}
  return schema === undefined ? '' : writer.attributes(schema)
}

/** Parameters of the operation, names of its filters, and links to those that many share. */
function parametersHtml(parameters: readonly Schema[], writer: SchemaWriter): string {
  const own = parameters.filter(parameter => parameter.$ref === undefined) as unknown as Parameter[]
  const [filters, others] = [own.filter(isFilter), own.filter(parameter => !isFilter(parameter))]
  const shared = parameters.filter(parameter => parameter.$ref !== undefined)
  const names = shared.map(parameter => code(String(writer.resolve(parameter).name))).join(', ')
  const shown = [
    others.length === 0 ? '' : `<dl>${others.map(parameter => parameterHtml(parameter, writer)).join('')}</dl>`,
    filters.length === 0 ? '' : `<p>Filters: ${filters.map(({ name }) => code(name)).join(', ')}</p>`,
    shared.length === 0 ? '' : `<p>Shared: <a href="#Parameters">${names}</a></p>`,
  ].join('')
  return shown === '' ? '' : `<h3>Parameters</h3>${shown}`
}

/** Whether a parameter only selects objects by the attribute of the same name, so that its name says it all. */
const isFilter = ({ in: place, description }: Parameter): boolean =>
  place === 'query' && /^(Only objects with this value\.|Return only \w+ (with this|whose) )/.test(description)

export function parameterHtml(
  { name, in: place, description, required, schema }: Parameter,
  writer: SchemaWriter,
): string {
  const where = place === 'query' ? '' : `${place}, `
  const type = `${where}${writer.typeOf(schema)}${required === true && place !== 'path' ? ', required' : ''}`
  return `<dt>${code(name)} <i>${escapeHtml(type)}</i><dd>${escapeHtml(description)}`
}

function answersHtml({ responses, summary }: Operation, writer: SchemaWriter): string {
  const entries = Object.entries(responses)
  const bad = entries.filter(([, answer]) => answer.$ref !== undefined).map(([status]) => status)
  const good = entries.filter(([status]) => !bad.includes(status))
  const rows = good.map(([status, answer]) => {
    const { description, content = {} } = answer as { description: string; content?: Content }
    const type = Object.keys(content).find(name => name !== 'application/json')
    const about = description === summary ? '' : escapeHtml(description)
    return `<dt>${code(status)}<dd>${about}${type === undefined ? '' : code(type)}${bodyHtml(content, writer)}`
  })
  return `<h3>Answer</h3><dl>${rows.join('')}</dl>${bad.length === 0 ? '' : `<p>Errors: <a href="#Errors">${bad.join(', ')}</a></p>`}`
}
