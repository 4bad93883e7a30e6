import * as z from 'zod'
import { jsonAnswer, NO_CONTENT } from '../../../api/answer.js'
import type { Call } from '../../../api/call.js'
import { objectOf, type Parameter, ref } from '../../../api/schema.js'
import type { Caller } from '../../../identity/caller.js'
import { attribute, parseAttributes, unwrap } from '../body.js'
import { route, type Service } from '../dialect.js'
import { type ChangeableKind, collectionPath, KINDS, pluralOf, type Singular } from '../kinds.js'
import { paginationLinks, parseListing, pickFields } from '../listing.js'
import { invalidRequest, NeutronError, notFound } from '../neutron-error.js'
import { type Item, MAX_TAGS, type Target } from '../resource.js'
import type { Source } from '../select.js'

/** The routes of one kind of resource: list, create, show, update, delete, and its tags. */
export const resourceRoutes = (source: Source & { kind: ChangeableKind }) => [
  ...fixedResourceRoutes(source),
  updateRoute(source.kind),
  ...tagRoutes(source.kind),
]

/** The same for objects that never change. */
export const fixedResourceRoutes = (source: Source) => [...collectionRoutes(source), ...itemRoutes(source.kind)]

function collectionRoutes({ kind: singular, columns, filters }: Source) {
  const { title } = KINDS[singular]
  const plural = pluralOf(singular)
  const path = collectionPath(singular)
  const group = plural
  return [
    route({
      ...{ method: 'GET', path, right: 'read', group, status: 200 },
      summary: `List ${title}s`,
      parameters: [...Object.keys({ ...columns, ...filters }).map(filterParameter), ...LIST_PARAMETERS.map(shared)],
      answer: objectOf({ [plural]: { type: 'array', items: ref(singular) }, [`${plural}_links`]: ref('links') }, [
        plural,
      ]),
      handle: async ({ resources }, { caller, base, queryString }) => {
        const listing = parseListing(queryString)
        const page = await resources[singular].list(caller, listing)
        const links = paginationLinks(listing, page, `${base}${path}`, queryString)
        return jsonAnswer(200, {
          [plural]: page.items.map(item => pickFields(item, listing.fields)),
          ...(links.length > 0 ? { [`${plural}_links`]: links } : {}),
        })
      },
    }),
    route({
      ...{ method: 'POST', path, right: 'write', group, status: 201 },
      summary: `Create one or several ${title}s`,
      requestForm: {
        anyOf: [objectOf({ [singular]: ref(`${singular}_create`) }), listOf(plural, `${singular}_create`)],
      },
      answer: { anyOf: [itemForm(singular), listOf(plural, singular)] },
      handle: async ({ resources }, call) => {
        const { items, bulk } = unwrap(await call.json(), singular, plural)
        const created = await resources[singular].create(call.caller, items)
        return jsonAnswer(201, bulk ? { [plural]: created } : { [singular]: created[0] })
      },
    }),
  ]
}

function itemRoutes(singular: Singular) {
  const { title } = KINDS[singular]
  const path = `${collectionPath(singular)}/:id`
  const group = pluralOf(singular)
  const answer = itemForm(singular)
  return [
    route({
      ...{ method: 'GET', path, right: 'read', group, status: 200 },
      summary: `Show a ${title}`,
      parameters: [shared('fields')],
      answer,
      handle: async (service, call) => {
        const item = await find(service, singular, call)
        return jsonAnswer(200, { [singular]: pickFields(item, parseListing(call.queryString).fields) })
      },
    }),
    route({
      ...{ method: 'DELETE', path, right: 'write', group, status: 204 },
      summary: `Delete a ${title}`,
      parameters: [IF_MATCH],
      handle: async ({ resources }, call) => {
        await resources[singular].remove(targetOf(call))
        return NO_CONTENT
      },
    }),
  ]
}

/** The route that changes an object. */
function updateRoute(singular: ChangeableKind) {
  return route({
    ...{
      method: 'PUT',
      path: `${collectionPath(singular)}/:id`,
      right: 'write',
      group: pluralOf(singular),
      status: 200,
    },
    summary: `Update a ${KINDS[singular].title}; attributes not given stay unchanged`,
    parameters: [IF_MATCH],
    requestForm: objectOf({ [singular]: ref(`${singular}_update`) }),
    answer: itemForm(singular),
    handle: async ({ resources }, call) => {
      const [attributes] = unwrap(await call.json(), singular).items
      return jsonAnswer(200, { [singular]: await resources[singular].update(targetOf(call), attributes) })
    },
  })
}

const tagRoutes = (singular: ChangeableKind) => [...tagListRoutes(singular), ...oneTagRoutes(singular)]

function tagListRoutes(singular: ChangeableKind) {
  const path = `${collectionPath(singular)}/:id/tags`
  const { title } = KINDS[singular]
  const group = pluralOf(singular)
  return [
    route({
      ...{ method: 'GET', path, right: 'read', group, status: 200 },
      summary: `List the tags of a ${title}`,
      answer: ref('tags'),
      handle: async (service, call) => jsonAnswer(200, { tags: (await find(service, singular, call)).tags }),
    }),
    route({
      ...{ method: 'PUT', path, right: 'write', group, status: 200 },
      summary: `Replace the tags of a ${title}`,
      parameters: [IF_MATCH],
      request: tagsSchema,
      answer: ref('tags'),
      handle: async ({ resources }, call) => {
        const { tags } = await call.body()
        return jsonAnswer(200, { tags: await resources[singular].retag(targetOf(call), () => tags) })
      },
    }),
    route({
      ...{ method: 'DELETE', path, right: 'write', group, status: 204 },
      summary: `Remove all tags of a ${title}`,
      parameters: [IF_MATCH],
      handle: async ({ resources }, call) => {
        await resources[singular].retag(targetOf(call), () => [])
        return NO_CONTENT
      },
    }),
  ]
}

function oneTagRoutes(singular: ChangeableKind) {
  const path = `${collectionPath(singular)}/:id/tags/:tag`
  const { title } = KINDS[singular]
  const group = pluralOf(singular)
  return [
    route({
      ...{ method: 'GET', path, right: 'read', group, status: 204 },
      summary: `Check whether a ${title} has a tag`,
      handle: async (service, call) => {
        const { tag = '' } = call.params
        if (!(await find(service, singular, call)).tags.includes(tag)) throw tagNotFound(tag)
        return NO_CONTENT
      },
    }),
    route({
      ...{ method: 'PUT', path, right: 'write', group, status: 201 },
      summary: `Add a tag to a ${title}`,
      parameters: [IF_MATCH],
      handle: async ({ resources }, call) => {
        const tag = parseAttributes(tagSchema, call.params.tag)
        await resources[singular].retag(targetOf(call), tags => [...tags, tag])
        return { status: 201 }
      },
    }),
    route({
      ...{ method: 'DELETE', path, right: 'write', group, status: 204 },
      summary: `Remove a tag from a ${title}`,
      parameters: [IF_MATCH],
      handle: async ({ resources }, call) => {
        const { tag = '' } = call.params
        await resources[singular].retag(targetOf(call), tags => {
          if (!tags.includes(tag)) throw tagNotFound(tag)
          return tags.filter(other => other !== tag)
        })
        return NO_CONTENT
      },
    }),
  ]
}

export function targetOf(call: Call<Caller>): Target {
  return { caller: call.caller, id: call.params.id ?? '', revision: requestedRevision(call.header('If-Match')) }
}

const REVISION = 'revision_number='

/** The revision in `If-Match: revision_number=N`; null without one. @throws NeutronError 400 in Neutron's wording */
function requestedRevision(header: string): number | null {
  const tags = header.split(',').map(tag => tag.trim().replace(/^"/, '').replace(/"$/, ''))
  const [given, ...more] = tags.filter(tag => tag.startsWith(REVISION)).map(tag => tag.slice(REVISION.length))
  if (more.length > 0) throw invalidRequest('Multiple revision_number constraints are not supported.')
  if (given === undefined) return null
  if (!/^\d{1,15}$/.test(given)) throw invalidRequest('Revision number constraint must be an integer.')
  return Number(given)
}

export const IF_MATCH: Parameter = {
  name: 'If-Match',
  in: 'header',
  description: '`revision_number=N`: the request is refused with 412 unless the object has this revision number.',
  schema: { type: 'string' },
}

export const itemForm = (singular: Singular) => objectOf({ [singular]: ref(singular) })

async function find({ resources }: Service, singular: Singular, { caller, params }: Call<Caller>): Promise<Item> {
  const item = await resources[singular].show(caller, params.id ?? '')
  if (item === null) throw notFound(singular, params.id ?? '')
  return item
}

const LIST_PARAMETERS = ['fields', 'sort_key', 'sort_dir', 'limit', 'marker', 'page_reverse']

const filterParameter = (name: string): Parameter => ({
  name,
  in: 'query',
  description: `Return only objects whose ${name.replaceAll('_', ' ')} has one of these values.`,
  schema: { type: 'array', items: { type: 'string' } },
})

const shared = (name: string) => ({ $ref: `#/components/parameters/${name}` })

const listOf = (plural: string, schema: string) =>
  objectOf({ [plural]: { type: 'array', items: ref(schema), minItems: 1, maxItems: 100 } })

// Filters separate tags with commas, so a tag cannot contain one.
const tagSchema = attribute.text.regex(/^[^,]{1,60}$/, { error: 'a tag must have 1 to 60 characters and no comma' })
const tagsSchema = z.strictObject({
  tags: z.array(tagSchema).max(MAX_TAGS, { error: `the maximum is ${MAX_TAGS} tags` }),
})

const tagNotFound = (tag: string) => new NeutronError(404, 'TagNotFound', `Tag ${tag} could not be found.`)
