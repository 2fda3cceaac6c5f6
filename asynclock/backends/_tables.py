"""The tables of the three clouds: the meaning of their own error codes, in addition to that of each status.

Sources: Amazon S3 API reference, "Error responses", and the codes of MinIO and Ceph; Cloud Storage JSON API,
"HTTP status and error codes"; Azure Storage REST API, "Blob service error codes" and "Common error codes".
"""

from __future__ import annotations

from typing import Final

from asynclock.backends._answers import Answers, Row
from asynclock.errors import (
    AccessDeniedError,
    BackendUnavailableError,
    OutcomeUnknownError,
    PreconditionFailedError,
    UnsupportedBackendError,
)

_REFUSED: Final = PreconditionFailedError
_UNKNOWN: Final = OutcomeUnknownError
_LATER: Final = BackendUnavailableError
_NEVER: Final = UnsupportedBackendError
_DENIED: Final = AccessDeniedError

REGION: Final = Row(_NEVER, "the bucket is in another region; set region")
_FULL: Final = Row(hint="the bucket or the store is full; free space, or raise the quota")
_CLOCK: Final = Row(_DENIED, "this machine's clock is wrong")
_SUSPENDED: Final = Row(_DENIED, "the account is suspended or not signed up; see its billing")
_DAMAGED: Final = Row(_LATER, "the body was damaged on the way to the store")
_SLOWER: Final = Row(_LATER, "the store wants fewer requests")
_KMS: Final = "the KMS key cannot be used; check sse_kms_key_id, the key's state and region, and the rights "

S3: Final = Answers(
    request_id="x-amz-request-id",
    codes={
        "PreconditionFailed": Row(_REFUSED),
        "NoSuchKey": Row(_REFUSED, "the object is missing"),
        "ConditionalRequestConflict": Row(_UNKNOWN),
        "OperationAborted": Row(_UNKNOWN),
        "RequestTimeout": Row(_UNKNOWN),
        "NoSuchBucket": Row(_NEVER, "the bucket does not exist"),
        "InvalidBucketName": Row(_NEVER, "this cannot be the name of a bucket"),
        "NotImplemented": Row(_NEVER, "the store has no conditional writes"),
        "MethodNotAllowed": Row(_NEVER),
        "InvalidObjectState": Row(
            _NEVER, "the object was moved to an archive tier; exempt the prefix from lifecycle"
        ),
        "PermanentRedirect": REGION,
        "AuthorizationHeaderMalformed": REGION,
        "IllegalLocationConstraintException": REGION,
        "SignatureDoesNotMatch": Row(hint="the secret key is wrong, or a proxy changed the request"),
        "InvalidAccessKeyId": Row(hint="the access key is unknown"),
        "InvalidClientTokenId": Row(_DENIED, "the access key is unknown"),
        "ExpiredToken": Row(_DENIED, "the session token has expired"),
        "ExpiredTokenException": Row(_DENIED, "the session token has expired"),
        "InvalidToken": Row(_DENIED, "the session token is wrong or from another store; renew it"),
        "InvalidTokenId": Row(_DENIED, "the session token is wrong or from another store; renew it"),
        "TokenRefreshRequired": Row(_DENIED, "the session token has to be renewed"),
        "RequestTimeTooSkewed": _CLOCK,
        "RequestExpired": _CLOCK,
        "AccountProblem": _SUSPENDED,
        "AllAccessDisabled": _SUSPENDED,
        "NotSignedUp": _SUSPENDED,
        "UserSuspended": _SUSPENDED,
        "QuotaExceeded": _FULL,
        "XMinioAdminBucketQuotaExceeded": _FULL,
        "XMinioStorageFull": _FULL,
        "BadDigest": _DAMAGED,
        "IncompleteBody": _DAMAGED,
        "XAmzContentSHA256Mismatch": _DAMAGED,
        "Throttling": _SLOWER,
        "ThrottlingException": _SLOWER,
        "RequestLimitExceeded": _SLOWER,
        "KMS.ThrottlingException": _SLOWER,
        "KMS.DependencyTimeoutException": Row(_UNKNOWN, "KMS did not answer the store"),
        "KMS.KMSInternalException": Row(_UNKNOWN, "KMS failed"),
        "KMS.*": Row(_NEVER, f"{_KMS}kms:GenerateDataKey and kms:Decrypt"),
        # Exceptions of the SDK, raised before it sends anything.
        "NoCredentialsError": Row(
            _DENIED,
            "none were found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, or the options"
            " access_key_id and secret_access_key",
        ),
        "PartialCredentialsError": Row(_DENIED, "half of a key was found; the other half is missing"),
        "ProfileNotFound": Row(_DENIED, "there is no such profile; check AWS_PROFILE"),
        "ConfigParseError": Row(
            _DENIED, "the SDK's configuration file cannot be read; check AWS_CONFIG_FILE"
        ),
        "SSOTokenLoadError": Row(_DENIED, "nobody is signed in; run aws sso login"),
        "UnauthorizedSSOTokenError": Row(_DENIED, "the sign-in has expired; run aws sso login"),
        "InfiniteLoopConfigError": Row(_DENIED, "the profiles refer to each other; check AWS_CONFIG_FILE"),
        "InvalidConfigError": Row(_DENIED, "the profile is incomplete; check AWS_CONFIG_FILE"),
        "UnknownCredentialError": Row(_DENIED, "the profile's credential_source is unknown"),
        "InvalidRegionError": Row(_NEVER, "this cannot be a region; set region"),
    },
    statuses={
        403: Row(
            _DENIED,
            "needs s3:GetObject and s3:PutObject, and s3:ListBucket so that a missing object answers 404; "
            "requester_pays if the bucket asks for it",
        ),
        404: Row(_NEVER, "stores do not answer like this without a code; check endpoint_url and path_style"),
    },
)

_TOO_FAST: Final = Row(_LATER, "more than one write per second to one object; set min_write_interval=1")

GCS: Final = Answers(
    request_id="x-guploader-uploadid",
    codes={
        "conditionNotMet": Row(_REFUSED),
        "rateLimitExceeded": _TOO_FAST,
        "userRateLimitExceeded": _SLOWER,
        "usageLimits": _SLOWER,
        "retentionPolicyNotMet": Row(_NEVER, "the bucket retains objects; a lock must be overwritten"),
        "objectUnderActiveHold": Row(_NEVER, "the object is under a hold; a lock must be overwritten"),
        "accountDisabled": _SUSPENDED,
        "userProjectAccountProblem": Row(_DENIED, "the project cannot be billed; see its billing account"),
        "userProjectMissing": Row(_DENIED, "the requester pays; set user_project"),
        "accessNotConfigured": Row(_DENIED, "the project has Cloud Storage switched off"),
        "insufficientPermissions": Row(_DENIED, "the token's scope lacks devstorage.read_write"),
        "orgPolicyViolation": Row(_DENIED, "a policy of the organisation forbids it"),
        "quotaExceeded": Row(hint="a quota of the project is used up"),
        "cloudKmsKeyDisabled": Row(_NEVER, f"{_KMS}of the service agent"),
    },
    statuses={
        401: Row(_DENIED, "the access token was refused"),
        403: Row(
            _DENIED, "needs storage.objects.get, create and delete (an overwrite is a delete), and list"
        ),
        404: Row(_NEVER, "the bucket does not exist"),
        429: _TOO_FAST,
    },
)

_LEASED: Final = Row(_NEVER, "somebody holds an Azure lease on the blob; break it")
_RETAINED: Final = Row(_NEVER, "the container retains blobs; a lock must be overwritten")
_ROLE: Final = "needs Storage Blob Data Contributor on the container, or a signature with rcwl"
_NO_NAME: Final = Row(_NEVER, "this cannot be the name of a container")

AZURE: Final = Answers(
    request_id="x-ms-request-id",
    codes={
        "BlobAlreadyExists": Row(_REFUSED),
        "ConditionNotMet": Row(_REFUSED),
        "BlobNotFound": Row(_REFUSED, "the blob is missing"),
        "ContainerNotFound": Row(_NEVER, "the container does not exist"),
        "ContainerDisabled": Row(_NEVER, "the container is disabled"),
        "ContainerBeingDeleted": Row(_UNKNOWN),
        "LeaseIdMissing": _LEASED,
        "LeaseIdMismatchWithBlobOperation": _LEASED,
        "LeaseNotPresentWithBlobOperation": _LEASED,
        "LeaseLost": _LEASED,
        "BlobImmutableDueToPolicy": _RETAINED,
        "BlobImmutableDueToLegalHold": _RETAINED,
        "UnauthorizedBlobOverwrite": Row(_NEVER, "the permission to create does not cover overwriting"),
        "BlobArchived": Row(_NEVER, "the blob is in the archive tier; exempt the prefix from lifecycle"),
        "BlobBeingRehydrated": Row(
            _NEVER, "the blob is being restored from the archive tier; wait, or delete it"
        ),
        "InvalidBlobType": Row(_NEVER, "a blob of another kind is in its place; delete that one"),
        "ResourceTypeMismatch": Row(_NEVER, "a folder is in its place; delete that one"),
        "OutOfRangeInput": _NO_NAME,
        "InvalidResourceName": _NO_NAME,
        "AuthenticationFailed": Row(hint="the key, token or signature is wrong or expired"),
        "InvalidAuthenticationInfo": Row(_DENIED, "the key, token or signature is wrong or expired"),
        "NoAuthenticationInformation": Row(_DENIED, "there was no credential in the request"),
        "AuthorizationFailure": Row(
            _DENIED, f"the account's firewall may not let this address in, or the credential {_ROLE}"
        ),
        "AuthorizationPermissionMismatch": Row(_DENIED, f"the credential {_ROLE}"),
        "AuthorizationSourceIPMismatch": Row(_DENIED, "the signature is for another address than this one"),
        "AuthorizationProtocolMismatch": Row(_DENIED, "the signature is for https only"),
        "KeyBasedAuthenticationNotPermitted": Row(
            _DENIED, "the account takes no account keys; use a token credential"
        ),
        "AccountIsDisabled": _SUSPENDED,
        "Md5Mismatch": _DAMAGED,
    },
    statuses={
        400: Row(_NEVER, "it does not understand the request; check account and container"),
        403: Row(_DENIED, _ROLE),
        404: Row(_NEVER, "nothing is there; check account_url and container"),
    },
)
