import { roleNames, type TokenDocument } from './tokens/document.js'

/** The named parts of a request's path: `{ user_id: '...' }`. */
export type Params = Readonly<Record<string, string>>

/** Decides from the token and the path alone whether a request is permitted. */
export type Rule = (token: TokenDocument, params: Params) => boolean

export const isAdmin = (token: TokenDocument): boolean => roleNames(token).includes('admin')

const isSystemReader = (token: TokenDocument) => token.system !== undefined && roleNames(token).includes('reader')

/** Any valid token. The handler decides what its user may see. */
export const anyone: Rule = () => true

export const administrators: Rule = token => isAdmin(token)

/** Administrators, and readers of the whole system. */
export const readers: Rule = token => isAdmin(token) || isSystemReader(token)

/** Readers, and the user in the path. */
export const readersAndUser: Rule = (token, params) =>
  readers(token, params) || (params.user_id ?? params.id) === token.user.id

/** Readers, and tokens scoped to the project in the path. */
export const readersAndProject: Rule = (token, params) => readers(token, params) || params.id === token.project?.id

/** Readers, users of the domain in the path, and tokens scoped to it or to one of its projects. */
export const readersAndDomain: Rule = (token, params) =>
  readers(token, params) || [token.user.domain.id, token.project?.domain.id, token.domain?.id].includes(params.id)

/** Only the user in the path: not even an administrator may act for it. */
export const userAlone: Rule = (token, params) => params.user_id === token.user.id

/** The user in the path, and administrators. */
export const administratorsAndUser: Rule = (token, params) => isAdmin(token) || params.user_id === token.user.id
