import { Option } from 'commander'
import { DEFAULT_IMAGE_TAG } from '../../../compute/images/tags.js'
import { UsageError } from '../../operator-error.js'

export const tagOption = new Option('--tag <tag>', 'tag of the image; flavors name it as amp_image_tag').default(
  DEFAULT_IMAGE_TAG,
)

/** @throws UsageError unless it can be the name of an image */
export function requireTag(tag: string): string {
  if (!/^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/.test(tag)) {
    throw new UsageError(
      `${tag} cannot be a tag: it takes letters, digits, dots, hyphens and underscores, at most 63, first a letter or digit.`,
    )
  }
  return tag
}
